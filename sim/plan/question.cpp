#include "plan/question.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.hpp"
#include "config/keys.hpp"
#include "config/run.hpp"
#include "config/text.hpp"
#include "plan/findings.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"
#include "study/prepare.hpp"

namespace kvcast::plan {

// Each in its own file.
extern const Kind kBreakEven, kLargest, kWhy, kSensitivities, kChoose, kMap, kChanges, kCompared;

namespace {

using config::Node;

constexpr const Kind* kKinds[] = {&kBreakEven, &kLargest, &kWhy,     &kSensitivities,
                                  &kChoose,    &kMap,     &kChanges, &kCompared};

std::unique_ptr<Question> read_question(const Node& run, const Node& item) {
  if (item.kind() != Node::Kind::kMap || item.entries().size() != 1) {
    throw UserError(item.where(), "plan: expected a question such as `why: {...}`, found " + config::describe(item),
                    question_kinds());
  }
  const auto& [name, map] = item.entries().front();
  for (const Kind* kind : questions()) {
    if (name == kind->name) return kind->make(run, map);
  }
  throw UserError(item.key_where(name),
                  fmt::format("plan: unknown question \"{}\"{}", name, config::did_you_mean(name, question_kinds())),
                  question_kinds());
}

}  // namespace

Chart chart_of(const Answer& answer, const Machines& machines) {
  for (const Kind* kind : kKinds) {
    if (answer.kind == kind->name) return kind->draw == nullptr ? Chart{} : kind->draw(answer.data, machines);
  }
  throw UserError(fmt::format("unknown kind of answer \"{}\"", answer.kind));
}

std::vector<const Kind*> questions() {
  std::vector<const Kind*> kinds;
  std::ranges::copy_if(kKinds, std::back_inserter(kinds), [](const Kind* kind) { return kind->make != nullptr; });
  return kinds;
}

std::vector<std::string> question_kinds() {
  std::vector<std::string> names;
  for (const Kind* kind : questions()) names.emplace_back(kind->name);
  return names;
}

config::Section section_of(const Kind& kind, const Node& map) {
  config::Section section(map, std::string(kind.name));
  config::check_keys(section, kind.keys);
  return section;
}

std::vector<std::unique_ptr<Question>> read_plan(const Node& config) {
  const Node* const list = config.find("plan");
  if (list == nullptr) throw UserError(config.where(), "a plan needs `plan:`, a list of questions", question_kinds());
  if (config.find("sweep") != nullptr) {
    throw UserError(config.key_where("sweep"), "a plan cannot have `sweep:`; `choose` takes lists of settings");
  }
  if (list->kind() != Node::Kind::kList || list->items().empty()) {
    throw UserError(list->where(), "plan: expected a list of questions, found " + config::describe(*list),
                    question_kinds());
  }
  const Node run = config.without({"plan"});
  check_run(run);
  std::vector<std::unique_ptr<Question>> questions;
  for (const Node& item : list->items()) questions.push_back(read_question(run, item));
  return questions;
}

void check_run(const Node& run) { study::prepare(run); }

namespace {

std::string without(const std::string& key, std::string_view prefix) {
  return key.starts_with(prefix) ? key.substr(prefix.size()) : key;
}

// "budget 1024", "batch 16", "on l40s", "PCIe 6".
std::string setting_text(const std::string& key, const std::string& value) {
  if (key == "hardware") return "on " + value;
  if (key == "hardware.link.pcie.generation") return "PCIe " + value;
  if (key == "hardware.link.pcie.lanes") return value + " lanes";
  return fmt::format("{} {}", without(without(without(key, "policy."), "workload."), "hardware."), value);
}

bool is_policy(const std::string& key) { return key == "policy.name" || key == "policy.file"; }

bool has_policy(const KeyValues& values) {
  return std::ranges::any_of(values, [](const auto& value) { return is_policy(value.first); });
}

}  // namespace

KeyValues name_budget(KeyValues values, const Node& run) {
  const auto is_budget = [](const auto& value) { return value.first == "policy.budget"; };
  if (!has_policy(values) || std::ranges::any_of(values, is_budget)) return values;
  const std::string budget = study::subject_of(study::prepare(run)).text("policy.budget");
  if (!budget.empty()) values.emplace_back("policy.budget", budget);
  return values;
}

std::string label_of(const KeyValues& values) {
  const auto rank = [](const std::string& key) {
    if (is_policy(key)) return 0;
    return key.starts_with("policy.") ? 1 : key.starts_with("hardware") ? 2 : 3;
  };
  std::vector<std::string> parts;
  for (int r = 0; r <= 3; ++r) {
    for (const auto& [key, value] : values) {
      if (rank(key) != r) continue;
      const bool bare = r == 0 || (key == "hardware" && parts.empty());  // nothing that would be on the machine
      parts.push_back(bare ? value : setting_text(key, value));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool Question::needs_scores() const {
  return plan::needs_scores(targets_) || (metric_ != nullptr && metric_->basis == result::Basis::kBenchmark);
}

Answer answer(const Question& question, Experiments& experiments) {
  experiments.want_scores(question.needs_scores());
  Answer answer = question.answer(experiments);
  const std::vector<ResultPtr> results = experiments.take_requested();
  answer.runs = static_cast<int>(results.size());
  const bool rounded = std::ranges::any_of(results, [](const ResultPtr& r) {
    return r->benchmark && r->subject.text("deployment.kv_cache") != config::precision_name(config::Precision::kBf16);
  });
  if (question.needs_scores() && rounded) {
    answer.say("Scores with a rounded cache (deployment.kv_cache) leave out the loss from reading rounded values.");
  }
  return answer;
}

std::vector<config::SweepPoint> points_of(const Node& run, const Node& map) {
  const Node cases = Node::list({map}, map.where());
  return config::expand_sweep(run.with("sweep", Node::map({{"cases", cases}}, map.where())));
}

Variant read_variant(const Node& run, const Node& overrides, const std::vector<std::string>& varied) {
  if (overrides.kind() != Node::Kind::kMap || overrides.entries().empty()) {
    throw UserError(overrides.where(),
                    "expected a map of keys to values such as {policy: full}, found " + config::describe(overrides));
  }
  const auto points = points_of(run, overrides);
  if (points.size() != 1) throw UserError(overrides.where(), "a list means several experiments; give one value");
  const auto& [config, values] = points.front();
  check_run(config);
  const bool fixed = std::ranges::find(varied, "policy.budget") == varied.end();
  const KeyValues named = fixed ? name_budget(values, config) : values;
  return {label_of(named), config, values, named};
}

void tell_apart(Variant& a, Variant& b) {
  const auto without = [](const Variant& v, const Variant& other) {
    KeyValues values = v.named;
    std::erase_if(values, [&](const auto& value) {
      return !value.first.starts_with("policy") && std::ranges::find(other.named, value) != other.named.end();
    });
    if (!values.empty() && !has_policy(values) && has_policy(other.named)) {
      values.emplace_back("policy.name", config::read_policy(*v.run.find("policy")).name);
    }
    return label_of(values);
  };
  std::string label_a = without(a, b), label_b = without(b, a);
  if (label_a.empty() || label_b.empty() || label_a == label_b) return;
  a.label = std::move(label_a), b.label = std::move(label_b);
}

void refuse_varied(const Variant& variant, const std::string& key, const char* question, const SourceLocation& where) {
  for (const auto& [name, value] : variant.values) {
    if (name != key) continue;
    throw UserError(where, fmt::format("{}: {} is set to {} here, but the question varies it", question, key, value));
  }
}

std::vector<Target> read_targets_of(const Node& run, const Node& map) {
  std::vector<Target> targets = read_targets(map);
  if (needs_scores(targets) && score_choice(run).benchmark == config::ScoreChoice::kNone) {
    throw UserError(map.where(), "targets: a limit on the score, but the run says `score: none`");
  }
  return targets;
}

const result::Metric& read_metric(const Node& node) {
  const result::Metric& metric = metric_named(config::read_text(node, "metric"), node.where());
  if (metric.better == result::Better::kNeither) {
    throw UserError(node.where(), fmt::format("{} is neither better higher nor lower", metric.path));
  }
  return metric;
}

bool needs_scores(const std::vector<Target>& targets) { return std::ranges::any_of(targets, is_of_score); }

std::vector<Target> with_floor(std::vector<Target> targets, const Node& run) {
  if (needs_scores(targets)) return targets;
  const std::vector<Target> floor = floor_target(score_choice(run));
  targets.insert(targets.end(), floor.begin(), floor.end());
  return targets;
}

std::string most_sensitive(const result::Result& result, const result::Metric& metric) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::pair<double, std::string>> moved;
  for (const result::Effect& e : result.experiment.effects) {
    const double longer = result::time_factor(result, metric, e.longer);
    const double shorter = result::time_factor(result, metric, e.shorter);
    const double reach = std::max(std::max(longer, 1 / longer), std::max(shorter, 1 / shorter));
    if (reach < 1.01) continue;
    const std::string name = e.source == result::kTraceSample ? "other layers, steps and texts" : name_of(e.keys);
    moved.emplace_back(-reach,
                       fmt::format("{} ({} to {} %)", name, format_change(100 * (std::min(longer, shorter) - 1), 0),
                                   format_change(100 * (std::max(longer, shorter) - 1), 0)));
  }
  std::ranges::sort(moved);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kNamed, moved.size()); ++i) names.push_back(moved[i].second);
  return fmt::format("{}", fmt::join(names, "; "));
}

const metrics::Attribution& time_of(const result::Result& result, const result::Metric* metric) {
  return metric != nullptr && is_of_prefill(*metric) ? result.experiment.prefill : result.experiment.step;
}

std::string binding_resource(const result::Result& result, const result::Metric* metric) {
  if (result.experiment.oom) return result.experiment.oom->pool + " capacity";
  return std::string(result::bottleneck(time_of(result, metric)));
}

std::string grounds_of(const result::Result& result) {
  return fmt::format("{} costs, {} attention ({})", origin_name(result::origin_of(result.experiment.step)),
                     result.accuracy.origin == Origin::kExact ? "captured" : "synthetic", result.subject.trace);
}

std::string grounds_of(const result::Result& result, const result::Metric& metric, std::string_view sensitive) {
  const std::string moved = most_sensitive(result, metric);
  return fmt::format("Grounds: {}{}.", grounds_of(result),
                     moved.empty() ? "" : fmt::format("; {} sensitive to {}", sensitive, moved));
}

nlohmann::json metrics_of(const result::Result& result, std::initializer_list<const char*> paths,
                          const std::vector<Target>& targets) {
  nlohmann::json out = nlohmann::json::object();
  const auto add = [&](const result::Metric& metric) {
    if (const auto value = result::value(result, metric)) out[metric.path] = *value;
  };
  for (const char* path : paths) add(*result::find_metric(path));
  for (const Target& target : targets) add(*target.metric);
  return out;
}

nlohmann::json json_of(const KeyValues& values) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : values) out[key] = value;
  return out;
}

}  // namespace kvcast::plan
