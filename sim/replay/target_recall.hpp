// Recall of the positions that a decode step must attend to, the input of predicted task scores.
//
// A trace's targets say which positions a step needs. Retrieving heads put most of their attention there; the share of
// that attention which a policy keeps is the step's recall.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "policy/policy.hpp"
#include "trace/targets.hpp"
#include "trace/trace.hpp"

namespace kvcast::replay {

// One decode step, all query heads of all captured layers together. Masses are shares of the full softmax.
struct StepRecall {
  std::int64_t targets = 0;  // positions that the step needs
  double full = 0;           // mass on them, summed over query heads
  double kept = 0;           // the part of it on attended positions; for a sample, as its weights estimate it
  double tokens = 0;  // needed positions attended to, summed over query heads with their mass on targets as weights

  double recall() const { return full > 0 ? std::min(1.0, kept / full) : 1; }  // weighted samples can exceed the total
  double mean_tokens() const { return full > 0 ? tokens / full : 0; }
};

struct TargetRecall {
  std::vector<StepRecall> steps;
  // Mass kept by query heads that put little on targets (local and streaming heads), over all steps: it keeps text
  // fluent.
  double other_kept = 0, other_full = 0;
  // The part of these heads' mass on the last kWrittenReach generated tokens, the step's own included, over the steps
  // that have any before them: continuing a text requires seeing what was just written.
  double written_kept = 0, written_full = 0;
  int retrieving = 0;  // query heads that retrieve, see FullMass::retrieves

  double other_recall() const { return other_full > 0 ? other_kept / other_full : 1; }
  double written_recall() const { return written_full > 0 ? written_kept / written_full : 1; }
  TargetRecall& operator+=(const TargetRecall& layer);  // adds another layer with the same number of steps
};

inline constexpr int kWrittenReach = 64;  // tokens; local heads see no further

// Numbers in arrays, for files.
nlohmann::json to_json(const TargetRecall& recall);
TargetRecall target_recall_from(const nlohmann::json& json);

// Full attention's mass on the targets of one layer, for any number of policies.
class FullMass {
 public:
  // The layer must outlive it; makes its decode scores. log_sums: log_sum() of all query heads, step by step, if the
  // caller has them.
  FullMass(const trace::Layer& layer, trace::Targets targets, int threads, std::vector<double> log_sums = {});

  const trace::Layer& layer() const { return layer_; }
  const std::vector<std::int64_t>& targets(int t) const { return targets_[static_cast<std::size_t>(t)]; }
  double log_sum(int q_head, int t) const { return log_sums_[at(q_head, t)]; }  // log Σ exp(q·k/√d)
  double target_mass(int q_head, int t) const { return masses_[at(q_head, t)]; }
  // See trace::kRetrieves.
  bool retrieves(int q_head) const { return retrieves_[static_cast<std::size_t>(q_head)]; }
  int retrieving() const { return static_cast<int>(std::count(retrieves_.begin(), retrieves_.end(), true)); }

 private:
  std::size_t at(int q_head, int t) const {
    return static_cast<std::size_t>(q_head) * targets_.size() + static_cast<std::size_t>(t);
  }
  const trace::Layer& layer_;
  trace::Targets targets_;
  std::vector<double> log_sums_, masses_;
  std::vector<bool> retrieves_;
};

class TargetMeter {
 public:
  explicit TargetMeter(const FullMass& full);
  // `selector` has just made `selection`. masses: the share of the full softmax on each query head's attended tokens,
  // if the caller has measured it.
  void measure(int t, const policy::LayerSelection& selection, const policy::Selector& selector,
               std::span<const double> masses = {});
  const TargetRecall& result() const { return result_; }

 private:
  // Mass that the policy's own softmax puts on `found` of `attended`, to whose logits it adds `added`.
  double weighed(int t, int q_head, std::span<const std::int32_t> attended, std::span<const float> added,
                 const std::vector<std::int64_t>& found) const;
  // Share of the full softmax on `attended`, which is not empty.
  double mass_on(int t, int q_head, std::span<const std::int32_t> attended);
  void measure_written(int t, int q_head, std::span<const std::int32_t> attended);
  const FullMass& full_;
  TargetRecall result_;
  std::vector<float> scores_;
};

}  // namespace kvcast::replay
