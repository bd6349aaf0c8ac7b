// Compares the attention of one step with full attention.
#pragma once

#include <vector>

#include "policy/policy.hpp"
#include "replay/oracle.hpp"

namespace kvcast::replay {

struct HeadAccuracy {
  double recall_mass = 1;
  double output_error = 0;
  double topk_overlap = 1;
};

// Keeps its buffers between steps.
class AccuracyMeter {
 public:
  explicit AccuracyMeter(const Oracle& oracle) : oracle_(oracle) {}
  // Appends one entry per query head to `out`. `selector` has just made `selection`; if it gives outputs of its own,
  // output_error is computed from them.
  void measure(int t, const policy::LayerSelection& selection, const policy::Selector& selector,
               std::vector<HeadAccuracy>& out);

 private:
  // Measures query heads first … first + n − 1, which share a KV head and a selection.
  void measure_group(int t, int first, int n, const std::vector<std::int32_t>& attended,
                     std::vector<HeadAccuracy>& out);
  // ‖outputs − full‖ / ‖full‖, outputs of one query head.
  double error_of(int t, int q_head, const float* output) const;
  HeadAccuracy measure_head(int t, int q_head, const std::vector<std::int32_t>& attended, std::span<float> weights);

  const Oracle& oracle_;
  policy::Ranking ranking_;
  std::vector<float> weights_, outputs_;
  std::vector<const float*> values_;
};

}  // namespace kvcast::replay
