// Questions of a plan and their answers. A kind of question is a file: what it reads, how it searches, what it says.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/run.hpp"
#include "config/yaml.hpp"
#include "plan/experiments.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

struct Answer {
  std::string kind;                  // "break_even"
  std::string question;              // as a sentence
  std::string text;                  // the conclusion, one sentence
  std::vector<std::string> details;  // one line each: grounds, intervals, what would change the conclusion
  nlohmann::json data;               // what `plan --json` prints of it, but for kind and runs
  int runs = 0;                      // experiments that it needed
};

// The answer as a store keeps it.
store::Answer stored(const Answer& answer);

class Question {
 public:
  virtual ~Question() = default;
  virtual Answer answer(Experiments& experiments) const = 0;
  // Whether the answer depends on predicted benchmark scores.
  virtual bool needs_scores() const { return false; }
};

// The questions of a plan's `plan:` list about the run around it. Everything is checked before anything runs: UserError
// with the place for unknown kinds, keys, metrics and policies.
std::vector<std::unique_ptr<Question>> read_plan(const config::Node& config);
// Kinds of questions, as they are written.
std::vector<std::string> question_kinds();
// The keys of each kind of question.
config::Shapes question_shapes();

// ---- What the files of questions share

// A run with some of its keys set otherwise, as `of:` and `against:` say.
struct Variant {
  std::string label;  // "quest, budget 1024, on l40s"
  config::Node run;
  std::vector<std::pair<std::string, std::string>> values;  // that are set: dotted key, value
};
// The settings of a map of keys, of which lists stand for several, as a case of a sweep has them.
std::vector<config::SweepPoint> points_of(const config::Node& run, const config::Node& map);
// UserError where the map is none, or holds lists.
Variant read_variant(const config::Node& run, const config::Node& overrides);
// Labels by what sets the two apart, leaving out what both set alike.
void tell_apart(Variant& a, Variant& b);
// A name for settings that set a run apart: those of a policy by its name first.
std::string label_of(const std::vector<std::pair<std::string, std::string>>& values);
// UserError where the run itself is refused.
void check_run(const config::Node& run);
// The metric of a question; UserError for one that is unknown or has no better and worse.
const result::Metric& read_metric(const config::Node& node);

// The costs that a comparison or a number depends on most, as sentences for `details`; none where no cost moves it by a
// per cent.
std::string most_sensitive(const result::Result& result, const result::Metric& metric);
// The bottleneck of a decode step; of what does not fit, the pool: "hbm capacity".
std::string binding_resource(const result::Result& result);
// Origin of the times, and the trace: "fitted costs; recipe needle, seed 1".
std::string grounds_of(const result::Result& result);

// Whether any of the targets is a benchmark score.
bool needs_scores(const std::vector<Target>& targets);
// The targets of a recommendation: those given, and the floor on the run's benchmark score unless they have one.
std::vector<Target> with_floor(std::vector<Target> targets, const config::Node& run);

// Each kind, from the map under its name. `run` is the plan without `plan:`.
std::unique_ptr<Question> make_break_even(const config::Node& run, const config::Node& map);
std::unique_ptr<Question> make_largest(const config::Node& run, const config::Node& map);
std::unique_ptr<Question> make_why(const config::Node& run, const config::Node& map);
std::unique_ptr<Question> make_sensitivities(const config::Node& run, const config::Node& map);
std::unique_ptr<Question> make_choose(const config::Node& run, const config::Node& map);
std::unique_ptr<Question> make_map(const config::Node& run, const config::Node& map);

}  // namespace kvcast::plan
