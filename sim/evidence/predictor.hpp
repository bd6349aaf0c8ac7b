// Predictions from evidence and simulation together, with intervals that held as often as they say on what was left
// out.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "evidence/leave_out.hpp"

namespace kvcast::evidence {

struct Parameters {
  Components components;
  std::array<std::array<double, kFamilies>, kNovelties> spread{};  // of intervals, see spread_of()
};
// configs/accuracy/evidence.yaml. UserError with the place for anything odd.
Parameters read_parameters(const std::string& path);
std::string write_parameters(const Parameters& parameters);

// Chooses spreads by what is left out.
Parameters with_spreads(const JointFit& fit, const Components& components);
// Changes one component after the other as long as what is left out is estimated better; one pass over all of them.
// `advance` is told how many changes have been tried.
Components fit_components(const std::vector<Record>& records, Components components,
                          const std::function<void(std::size_t done, std::size_t total)>& advance);

struct Prediction {
  double points = 0, low = 0, high = 0;  // 80 % of published scores are to lie within
};

class Predictor {
 public:
  Predictor(std::vector<Record> records, Parameters parameters);

  // Rows for which `is_left_out` holds are not seen; none: all are.
  Prediction predict(const Setting& setting, const IsLeftOut& is_left_out = {}) const;
  // "published: RocketKV Table 6 (llama-3.1-8b, ruler, budgets of 256 to 4096 tokens, prompts of 16384)", and what is
  // simulated.
  std::string rests_on(const Setting& setting) const;
  // What the records of the setting's benchmark lack: its model, its method (which counts where both are new), prompts
  // as long of its model, or none of these, which is a new table. Nothing where the benchmark itself is new.
  std::optional<Novelty> novelty(const Setting& setting, const IsLeftOut& is_left_out = {}) const;
  const std::vector<Record>& records() const { return estimator_.records(); }

 private:
  Estimator estimator_;
  Parameters parameters_;
};

}  // namespace kvcast::evidence
