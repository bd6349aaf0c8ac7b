// Selects among many settings: the best one that meets the targets, and the Pareto front of those that do.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/best_batch.hpp"
#include "plan/compare.hpp"
#include "plan/grid_search.hpp"
#include "plan/question.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

extern const Kind kChoose;

// Returns the question for a run with traffic (choose_service.cpp).
std::unique_ptr<Question> make_choose_service(const config::Node& run, const config::Node& map);

// Draw the answers for a run without traffic (choose_answer.cpp) and with it (choose_service.cpp).
Chart draw_choose(const nlohmann::json& data);
Chart draw_choose_service(const nlohmann::json& data);

// The question for a run without traffic: choose.cpp reads it and searches the grid, choose_answer.cpp concludes.
class Choose final : public Question {
 public:
  // `run`: the plan without `plan:`. `map`: keys to lists, and optionally targets, prices and an objective. Throws
  // UserError with the location for everything that is wrong in it, before anything is simulated.
  Choose(const config::Node& run, const config::Node& map);

  Answer answer(Experiments& experiments) const override;

 private:
  static constexpr const char* kCheapest = "cheapest";
  static constexpr const char* kFastest = "fastest";
  // Return the metrics of these two objectives.
  static const result::Metric& cost_metric();
  static const result::Metric& rate_metric();

  // ---- Input

  // Expands the lists into the grid, without batches that are larger than their engine serves.
  void read_grid(const config::Node& run, const config::Node& map);
  // Throws UserError for equal settings. Two names of one machine give such, which a sweep's own check does not see.
  void refuse_duplicates() const;
  // Prices the settings of each machine; throws UserError for a machine that is not of this question.
  void read_prices(const config::Node& prices);
  // Reads the objective. None means the lowest cost if the question gives prices, or the run gives all of them, and the
  // highest rate otherwise. A cost that only some of the settings have is left out: they could not be compared by it;
  // throws UserError if the objective or a target needs it. `asked`: the question gives prices.
  void read_objective(const config::Node* objective, bool asked, const SourceLocation& where);

  // ---- Batches

  // Returns every batch that was simulated in the search, as a setting of its own.
  std::vector<Candidate> at_searched_batches(Experiments& experiments) const;
  // Returns the line of a setting's batches, up to its engine's limit and, if the question lists batches, the largest
  // of those.
  BatchLine line_of(const Candidate& s) const;
  // Drops settings whose fit is borderline where another batch of the same fits beyond doubt. Returns how many.
  static std::size_t drop_borderline(std::vector<const Candidate*>& good);
  static KeyValues without_batch(KeyValues values);
  // Returns whether two settings differ in their batch at most.
  static bool same_line(const Candidate& a, const Candidate& b);

  // ---- Conclusion

  // Returns the number of settings of the question, simulated or not.
  std::size_t total() const { return grid_.size() + beyond_engine_; }
  // Returns whether the objective is one of which lower is better.
  bool cheapest() const { return metric_->better == result::Better::kLower; }
  // Returns the objective as a number of which higher is better.
  double merit(const Candidate& s) const;
  Comparison lead(const Candidate& a, const Candidate& b) const { return compare(*a.result, *b.result, *metric_); }

  // Describes a setting for the data of the answer: its keys, metrics, fit and bottleneck.
  nlohmann::json entry(const Candidate& s) const;
  // Describes its numbers as a text, the objective first.
  std::string numbers_text(const Candidate& s) const;
  std::string cost_unit() const;
  std::string objective_text() const;

  // Answers the question, except for add_perhaps and add_nearest. `good`: settings that meet the targets, best first.
  // `misses`: number of settings that each reason excludes.
  Answer conclude(const std::vector<Candidate>& grid, const std::vector<const Candidate*>& good,
                  const std::map<std::string, int>& misses, Experiments& experiments) const;
  // Names the ties, and the numbers by which they differ more than the objective does.
  std::string ties_text(const Candidate& best, const std::vector<const Candidate*>& tied) const;
  // Compares two settings, each at its own best batch up to the largest that the question allows, and at one batch.
  std::string lead_text(const Candidate& best, const Candidate& next, Experiments& experiments,
                        nlohmann::json& data) const;
  // Adds the Pareto front of the good settings, equal ones once in the text.
  void add_front(const std::vector<const Candidate*>& good, std::int64_t simulated, Answer& out) const;
  // Adds the number of settings that each reason excludes.
  void add_misses(const std::map<std::string, int>& misses, Answer& out) const;
  // Adds settings whose intervals leave open whether they meet the targets, best first; of settings that differ in
  // their batch alone the first.
  void add_perhaps(const std::vector<const Candidate*>& perhaps, Answer& out) const;
  // Says for the line that comes nearest to the targets without meeting them what would admit it.
  void add_nearest(const std::vector<Candidate>& grid, const std::vector<const Candidate*>& good,
                   Experiments& experiments, Answer& out) const;

  std::vector<Candidate> grid_;
  std::map<std::string, std::string> files_;  // of the settings' machines, by their names in the plan
  std::size_t beyond_engine_ = 0;  // settings with more sequences than their engine serves, which are not in the grid
  bool lists_batches_ = false, priced_ = false;
};

}  // namespace kvcast::plan
