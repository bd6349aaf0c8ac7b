// Predictions from evidence and simulation together, with intervals whose coverage is calibrated on left-out records.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "evidence/intervals.hpp"

namespace kvcast::evidence {

struct Parameters {
  template <typename T>
  using ByNovelty = std::array<std::array<T, kFamilies>, kNovelties>;

  Components components;
  ByNovelty<std::array<double, kRanges>> spread{};  // of intervals, see spread_of()
  ByNovelty<double> common{};                       // of errors of the tasks of a benchmark, see common_of()
};
// Reads configs/accuracy/evidence.yaml. Throws UserError with the location for invalid content.
Parameters read_parameters(const std::string& path);
std::string write_parameters(const Parameters& parameters);

// Chooses spreads and common shares of errors by the records left out.
Parameters with_spreads(const JointFit& fit, const Components& components);
// Doubles or halves one component after the other, and keeps changes by which records left out are estimated better,
// until a pass over all components keeps none. `advance` receives the number of changes tried in the present pass,
// and that of a whole pass.
Components fit_components(const std::vector<ScoreRecord>& records, Components components,
                          const std::function<void(std::size_t done, std::size_t total)>& advance);

struct Prediction {
  double points = 0, low = 0, high = 0;  // interval expected to contain 80 % of published scores
  double common = 1;                     // share of the error that all tasks of the benchmark have in common
};

class Predictor {
 public:
  Predictor(std::vector<ScoreRecord> records, Parameters parameters);

  // Ignores the rows for which `is_left_out` returns true; an empty function ignores none, and its predictions are
  // kept: a page asks for the same ones again with every number of the machine that changes. May be called from any
  // thread.
  Prediction predict(const ScoredTask& setting, const IsLeftOut& is_left_out = {}) const;
  // Returns the one of these papers whose row of the method is nearest to the setting: of its model and its task if
  // there is one, and then at the nearest budget and prompt length. Of two rows as near, the one of another paper than
  // the setting's is taken, because a user has measured it. The setting's own paper if none of them has rows.
  std::string nearest_paper(const ScoredTask& setting, const std::set<std::string>& papers) const;
  // Returns the basis of a prediction: "published scores in RocketKV Table 6 (llama-3.1-8b, budgets of 256 to 4096
  // tokens, prompts of 16384 tokens); the difference is simulated". has_settings returns whether a paper's rows of the
  // method are of the policy's own settings; those of other settings are listed as such.
  std::string origin(const ScoredTask& setting,
                     const std::function<bool(const std::string& paper)>& has_settings) const;
  // Returns the property of the setting that the records of its benchmark lack: its method (also if its model is new),
  // its model, prompts as long with its model, or none of these (a new table). Empty if the benchmark itself is new.
  std::optional<Novelty> novelty(const ScoredTask& setting, const IsLeftOut& is_left_out = {}) const;
  const std::vector<ScoreRecord>& records() const { return estimator_.records(); }

 private:
  Prediction predicted(const ScoredTask& setting, const IsLeftOut& is_left_out) const;

  Estimator estimator_;
  Parameters parameters_;
  struct Kept {
    std::mutex mutex;
    std::map<ScoredTask, Prediction> predictions;
  };
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
};

}  // namespace kvcast::evidence
