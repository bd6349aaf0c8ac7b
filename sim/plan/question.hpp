// Questions of a plan and their answers. Each kind of question is one file: its keys, its search, its conclusion, and
// the chart of that.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/keys.hpp"
#include "config/run.hpp"
#include "config/yaml.hpp"
#include "plan/chart.hpp"
#include "plan/experiments.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

using store::Answer;

class Question {
 public:
  virtual ~Question() = default;
  virtual Answer answer(Experiments& experiments) const = 0;
  // Returns whether the answer depends on predicted benchmark scores.
  bool needs_scores() const;

 protected:
  const result::Metric* metric_ = nullptr;  // of which the question is
  std::vector<Target> targets_;
};

// Answers a question with scores if it needs them, and counts its experiments.
Answer answer(const Question& question, Experiments& experiments);

// Reads the questions of a plan's `plan:` list about the run around it. Everything is checked before anything runs:
// throws UserError with the location for unknown kinds, keys, metrics and policies.
std::vector<std::unique_ptr<Question>> read_plan(const config::Node& config);
// Returns the chart of an answer. Throws UserError if its kind is unknown.
Chart chart_of(const Answer& answer, const Machines& machines);
// Kinds of questions, as they are written.
std::vector<std::string> question_kinds();
// The kinds of questions, for the schema of plans.
struct Kind;
std::vector<const Kind*> questions();

// ---- Shared by the files of questions

// A kind of answer: a question of a plan, or a comparison of stores.
struct Kind {
  std::string_view name;  // as a plan writes the question
  Chart (*draw)(const nlohmann::json& data, const Machines& machines) = nullptr;
  // `run` is the plan without `plan:`, `map` what is under the question's name. Null for
  // comparisons.
  std::unique_ptr<Question> (*make)(const config::Node& run, const config::Node& map) = nullptr;
  std::span<const config::Key<config::Node>> keys = {};  // the question reads their values
  bool has_axes = false;                                 // also has keys of a run, each with a value or a list of them
  bool any_metric = false;                               // its metric need not have a better direction
  // Has either all of the first keys and none of the second, or the reverse. Both are empty without such a choice.
  std::span<const std::string_view> either = {}, other = {};
};

template <typename Q>
std::unique_ptr<Question> make(const config::Node& run, const config::Node& map) {
  return std::make_unique<Q>(run, map);
}

// Keys of questions.
inline constexpr config::Slot<config::Node> kNeeded{.required = true};
inline constexpr config::Slot<config::Node> kNeededText{.type = config::KeyShape::Type::kText, .required = true};

using KeyValues = std::vector<std::pair<std::string, std::string>>;  // dotted key, value

// A run with some of its keys changed, as `of:` and `against:` specify.
struct Variant {
  std::string label;  // "quest, budget 1024, on l40s"
  config::Node run;
  KeyValues values;  // that it changes
  KeyValues named =
      {};  // that its label states: the changed ones, and the budget of a policy that is named without one
};
// Expands a map of keys in which lists mean several settings, like a case of a sweep.
std::vector<config::SweepPoint> points_of(const config::Node& run, const config::Node& map);
// Throws UserError if the node is not a map, or contains lists. `varied`: keys that the question itself varies.
Variant read_variant(const config::Node& run, const config::Node& overrides,
                     const std::vector<std::string>& varied = {});
// Labels two variants by their differences, leaving out values that both share. If one of them changes the policy, the
// other is labelled with its own.
void tell_apart(Variant& a, Variant& b);
// Returns the values, and `policy.budget` if they name a policy without the budget that `run`, to which they lead, has.
KeyValues name_budget(KeyValues values, const config::Node& run);
// Returns a name for settings that distinguish a run: those of a policy start with its name.
std::string label_of(const KeyValues& values);
// Throws UserError if the run itself is invalid.
void check_run(const config::Node& run);
// Throws UserError if the variant sets the key that the question itself varies.
void refuse_varied(const Variant& variant, const std::string& key, const char* question, const SourceLocation& where);
// Reads the targets of a question about `run`. Throws UserError for a limit on a score that the run does without.
std::vector<Target> read_targets_of(const config::Node& run, const config::Node& map);
// Reads the metric of a question; throws UserError for one that is unknown or has no better direction.
const result::Metric& read_metric(const config::Node& node);

// Describes the costs that a comparison or a number depends on most, as sentences for `details`; none if no cost moves
// it by a per cent.
std::string most_sensitive(const result::Result& result, const result::Metric& metric);
// The attribution of a decode step, or of the prefill if the metric is one of its times.
const metrics::Attribution& time_of(const result::Result& result, const result::Metric* metric);
// The bottleneck of that time; for an experiment that does not fit, the pool: "hbm capacity".
std::string binding_resource(const result::Result& result, const result::Metric* metric = nullptr);
// Describes the origin of the times, and the trace: "fitted costs; recipe needle, seed 1".
std::string grounds_of(const result::Result& result);
// Returns the same as a sentence, which goes on with the costs to which the metric is most sensitive. `sensitive`
// begins that part: "a step is most".
std::string grounds_of(const result::Result& result, const result::Metric& metric, std::string_view sensitive);

// Data of an answer: the metrics of these paths, and those of the targets, that the result has.
nlohmann::json metrics_of(const result::Result& result, std::initializer_list<const char*> paths,
                          const std::vector<Target>& targets);
nlohmann::json json_of(const KeyValues& values);

// Returns whether any of the targets is a benchmark score.
bool needs_scores(const std::vector<Target>& targets);
// Returns the targets of a recommendation: those given, and the floor on the run's benchmark score unless they include
// one.
std::vector<Target> with_floor(std::vector<Target> targets, const config::Node& run);

// The map under a question's name. Throws UserError for other keys than the question's, and for missing ones.
config::Section section_of(const Kind& kind, const config::Node& map);

}  // namespace kvcast::plan
