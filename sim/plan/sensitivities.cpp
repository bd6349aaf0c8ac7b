// Sensitivity of a metric to each number of the machine, the workload and the policy: elasticities d ln metric / d ln
// key by central differences of simulated experiments, and the bottleneck as each important number grows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/or_null.hpp"
#include "base/units.hpp"
#include "config/hardware.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "plan/key.hpp"
#include "plan/question.hpp"
#include "plan/setting_text.hpp"
#include "plan/target.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

extern const Kind kSensitivities;

namespace {

using config::Node;
using nlohmann::json;

constexpr double kMachineStep = 1.1;  // factor for a number of the machine, up and down
constexpr double kLargeStep = 1.25;   // factor for counts of the policy and the workload
constexpr double kMatters = 0.01;     // smaller elasticities are not followed further
constexpr double kGrowth[] = {2, 4, 8};
constexpr double kMostReplayed = 2;  // largest growth of keys whose every value needs its own replay

const std::vector<Node>& list_of(const Node& node) {
  if (node.kind() == Node::Kind::kList && !node.items().empty()) return node.items();
  throw UserError(node.where(), "keys: expected a list of keys, found " + config::describe(node));
}

class Sensitivities final : public Question {
 public:
  Sensitivities(const Node& run, const Node& map) {
    config::Section section = section_of(kSensitivities, map);
    metric_ = &metric_named(section.text("metric"), section.where("metric"));
    of_ = section.has("of") ? read_variant(run, section.node("of")) : Variant{"", run, {}};
    if (section.has("keys")) {
      for (const Node& node : list_of(section.node("keys")))
        keys_.push_back(find_key(of_.run, config::read_text(node, "keys"), node.where()));
    } else {
      keys_ = all_keys();
    }
  }

  Answer answer(Experiments& experiments) const override {
    const ResultPtr base = experiments.run(of_.run);
    if (base->status == result::Status::kFailed) throw UserError(base->error);
    Answer out;
    out.kind = kSensitivities.name;
    out.question = fmt::format("What does {} depend on{}?", result::label_in_sentence(*metric_),
                               of_.label.empty() ? "" : " for " + of_.label);
    out.data = {{"metric", metric_->path}, {"sensitivities", json::array()}};
    const auto value = result::value(*base, *metric_);
    if (!value || *value == 0) {
      out.text = base->experiment.oom ? "The run does not fit in memory, so that it has no times."
                                      : fmt::format("The run has no {}.", metric_->path);
      return out;
    }
    std::vector<Moved> moved = differences(experiments);
    follow(experiments, moved);
    tell(*base, *value, moved, out);
    return out;
  }

 private:
  struct Moved {
    const VariedKey* key = nullptr;
    double elasticity = 0;
    json grows = json::array();
    std::string becomes;  // "at 2 times: kernel latency"
  };

  // Non-zero numbers of the machine, then of the workload and the policy.
  std::vector<VariedKey> all_keys() const {
    std::vector<std::string> paths;
    const config::Run run = config::read_run(of_.run);
    for (const config::ConstKnob& knob : config::knobs(run.hardware)) paths.push_back("hardware." + knob.key);
    paths.insert(paths.end(), {"workload.batch", "workload.decode_tokens"});
    if (run.traces.front().file.empty()) paths.emplace_back("workload.prompt_tokens");  // a file has a fixed length
    for (const policy::Parameter& p : policy::find_policy(run.policy.name).parameters)
      paths.push_back("policy." + p.key);
    std::vector<VariedKey> keys;
    for (const std::string& path : paths) {
      try {
        VariedKey key = find_key(of_.run, path, {});
        if (std::isfinite(key.now) && key.now > 0) keys.push_back(std::move(key));
      } catch (const UserError&) {
        // A parameter that takes texts is not a number to vary.
      }
    }
    return keys;
  }

  static double step_of(const VariedKey& key) { return key.path.starts_with("hardware.") ? kMachineStep : kLargeStep; }

  static double moved_to(const VariedKey& key, double factor) {
    double x = key.now * factor;
    if (key.integer) x = factor > 1 ? std::max(std::round(x), key.now + 1) : std::min(std::round(x), key.now - 1);
    return std::clamp(x, std::max(key.low, key.integer ? 1.0 : key.low), key.high);
  }

  // Both ends of a difference; an end at which the run is rejected or does not fit is replaced by the run itself.
  std::vector<Moved> differences(Experiments& experiments) const {
    std::vector<Node> runs{of_.run};
    for (const VariedKey& key : keys_) {
      for (const double factor : {step_of(key), 1 / step_of(key)})
        runs.push_back(with_value(of_.run, key, moved_to(key, factor)));
    }
    const std::vector<ResultPtr> results = experiments.run(runs);
    std::vector<Moved> moved;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const VariedKey& key = keys_[i];
      double x[2] = {moved_to(key, step_of(key)), moved_to(key, 1 / step_of(key))}, y[2];
      for (std::size_t end = 0; end < 2; ++end) {
        auto number = result::value(*results[1 + 2 * i + end], *metric_);
        if (!number) x[end] = key.now, number = result::value(*results[0], *metric_);
        y[end] = *number;
      }
      if (x[0] == x[1] || y[0] <= 0 || y[1] <= 0) continue;
      moved.push_back({&key, std::log(y[0] / y[1]) / std::log(x[0] / x[1]), json::array(), ""});
    }
    std::ranges::stable_sort(
        moved, [](const Moved& a, const Moved& b) { return std::abs(a.elasticity) > std::abs(b.elasticity); });
    return moved;
  }

  // Follows the metric and the bottleneck to larger values of each key that matters.
  void follow(Experiments& experiments, std::vector<Moved>& moved) const {
    std::vector<Node> runs;
    std::vector<std::pair<Moved*, double>> moves;
    for (Moved& m : moved) {
      if (std::abs(m.elasticity) < kMatters) continue;
      for (const double factor : kGrowth) {
        const double x = m.key->now * factor;
        const bool replays = !m.key->path.starts_with("hardware.") && m.key->path != "workload.batch";
        if (x > m.key->high || (replays && factor > kMostReplayed)) continue;
        moves.emplace_back(&m, factor);
        runs.push_back(with_value(of_.run, *m.key, x));
      }
    }
    const std::vector<ResultPtr> results = experiments.run(runs);
    const ResultPtr base = experiments.run(of_.run);
    std::string before = binding_resource(*base, metric_);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const auto& [m, factor] = moves[i];
      if (results[i]->status == result::Status::kFailed) continue;  // beyond the limits of the model or the machine
      const auto value = result::value(*results[i], *metric_);
      const std::string now = binding_resource(*results[i], metric_);
      m->grows.push_back(
          {{"value", json_of(*m->key, m->key->now * factor)}, {"metric", or_null(value)}, {"binding_resource", now}});
      if (m->becomes.empty() && now != before) m->becomes = fmt::format("{} at {:.0f} times", now, factor);
    }
  }

  void tell(const result::Result& base, double value, const std::vector<Moved>& moved, Answer& out) const {
    out.data["value"] = value;
    out.data["binding_resource"] = binding_resource(base, metric_);
    constexpr std::size_t kInText = 3, kInDetails = 12;
    std::vector<std::string> most;
    for (const Moved& m : moved) {
      const std::string& key = m.key->path;
      out.data["sensitivities"].push_back(
          {{"key", key}, {"elasticity", m.elasticity}, {"value", json_of(*m.key, m.key->now)}, {"grows", m.grows}});
      if (std::abs(m.elasticity) < kMatters) continue;  // the largest come first
      if (most.size() < kInText) most.push_back(fmt::format("{} ({})", key, format_change(m.elasticity, 2)));
      if (out.details.size() == kInDetails) continue;
      out.say("{}, now {}: elasticity {}; the bottleneck {}", key, short_text(*m.key, m.key->now),
              format_change(m.elasticity, 3), m.becomes.empty() ? "stays as it grows" : "becomes " + m.becomes);
    }
    out.text = fmt::format("{} is {} (bottleneck {}) and depends most on {}.", metric_->label,
                           result::format_value(*metric_, value), binding_resource(base, metric_),
                           most.empty() ? "nothing by a hundredth" : fmt::format("{}", fmt::join(most, ", ")));
    out.say(
        "An elasticity of -0.5: twice the key multiplies the metric by 2^-0.5. Numbers that are tied to a changed one "
        "move with it.");
    out.say("A request of it: {}.", request_text(base));
    out.say("Grounds: {}.", grounds_of(base));
  }

  Variant of_;
  std::vector<VariedKey> keys_;
};

constexpr config::Key<Node> kSensitivitiesKeys[] = {{"metric", kNeeded}, {"of"}, {"keys"}};

// Bars of elasticities.
Chart draw_sensitivities(const json& data, const Machines&) {
  constexpr std::size_t kMostElasticities = 15;
  json bars = json::array();
  for (const json& s : data.at("sensitivities")) {
    const double elasticity = s.at("elasticity");
    if (bars.size() == kMostElasticities || elasticity == 0) break;  // the largest come first
    bars.push_back(
        {{"row", bars.size()}, {"key", s.at("key")}, {"elasticity", elasticity}, {"text", signed_text(elasticity)}});
  }
  if (bars.empty()) return {};
  const std::string title = fmt::format("elasticity of {}, % per %", axis_title(metric_of(data)));
  return {.spec = "plan_sensitivities", .data = {{"elasticities", bars}}, .signals = {{"x_title", title}}};
}

}  // namespace

constinit const Kind kSensitivities{.name = "sensitivities",
                                    .draw = draw_sensitivities,
                                    .make = make<Sensitivities>,
                                    .keys = kSensitivitiesKeys,
                                    .any_metric = true};

}  // namespace kvcast::plan
