#include "plan/changes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/units.hpp"

namespace kvcast::plan {

extern const Kind kChanges, kCompared;

namespace {

using nlohmann::json;
using result::Metric;
using result::Result;
using result::Subject;

constexpr double kNoChange = 1e-3;  // ratios with a smaller |ln(ratio)| count as equal
// Time per output token is the inverse of the throughput.
constexpr std::array kComparedMetrics{"tps", "ttft", "hbm", "dram", "score", "predicted", "recall"};

// A policy and one of its parameters.
using KeyOf = std::pair<std::string, std::string>;
KeyOf key_of(const Subject& subject, const std::string& key) {
  const bool parameter = key.starts_with("policy.") && key != "policy.name";
  return {parameter ? subject.policy : "", key};
}

// The name of a machine without its changes: "h100-sxm" for "h100-sxm (gpu.hbm_bandwidth 4.02 TB/s)".
std::string base_of(const std::string& machine) { return machine.substr(0, machine.find(" (")); }

// Names of machines by base name, if every base occurs under a single name; otherwise empty.
using MachineNames = std::map<std::string, std::string>;
MachineNames machines_by_base(const std::vector<Result>& results) {
  MachineNames machines;
  for (const Result& r : results) {
    const std::string& name = r.subject.hardware;
    if (machines.emplace(base_of(name), name).first->second != name) return {};
  }
  return machines;
}

// Returns whether a key is set by the user: neither derived from others nor a mere name of the experiment.
bool is_setting(const std::string& key) {
  return key != "name" && key != "policy_category" && key != "match.reached" && key != "host";
}

// The values of every key; "" represents experiments that lack it.
class Values {
 public:
  // by_base: machines are identified by their base names, so that each is paired with its altered counterpart.
  Values(const std::vector<Result>& results, bool by_base) : by_base_(by_base) {
    for (const Result& r : results) {
      ++experiments_[""], ++experiments_[r.subject.policy];
      for (const result::Setting& s : r.subject.settings) {
        const KeyOf key = key_of(r.subject, s.key);
        values_[key].insert(text_of(s)), ++times_[key];
      }
    }
    for (auto& [key, values] : values_) {
      if (times_[key] < experiments_[key.first]) values.insert("");
    }
  }

  bool knows(const KeyOf& key) const { return values_.contains(key); }
  // Returns the only value of the key; nothing if there are several.
  std::optional<std::string> only(const KeyOf& key) const {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.size() != 1) return {};
    return *found->second.begin();
  }
  const std::map<KeyOf, std::set<std::string>>& all() const { return values_; }
  // Returns whether the key is part of an experiment's identity. A base name implies a machine's changes.
  bool identifies(const std::string& key) const {
    return is_setting(key) && !(by_base_ && key.starts_with("hardware."));
  }
  std::string text_of(const result::Setting& s) const {
    const std::string text = result::text_of(s.value);
    return by_base_ && s.key == "hardware" ? base_of(text) : text;
  }

 private:
  bool by_base_;
  std::map<KeyOf, std::set<std::string>> values_;
  std::map<KeyOf, std::size_t> times_;
  std::map<std::string, std::size_t> experiments_;  // number of experiments by policy; "" counts all
};

// Returns whether a pair may differ in the key: only one side knows it, or each side has a single value.
bool is_free(const Values& a, const Values& b, const KeyOf& key) {
  if (!a.knows(key) || !b.knows(key)) return true;
  const auto of_a = a.only(key), of_b = b.only(key);
  return of_a && of_b && *of_a != *of_b;
}

std::string identity(const Subject& subject, const Values& a, const Values& b) {
  std::string text;
  for (const result::Setting& s : subject.settings) {
    if (a.identifies(s.key) && !is_free(a, b, key_of(subject, s.key)))
      text += fmt::format("{}={}\n", s.key, a.text_of(s));
  }
  return text;
}

// Indices by identity; settings that several experiments share are dropped.
std::map<std::string, std::size_t> indices(const std::vector<Result>& results, const Values& a, const Values& b) {
  std::map<std::string, std::size_t> found;
  std::set<std::string> several;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string id = identity(results[i].subject, a, b);
    if (!found.emplace(id, i).second) several.insert(id);
  }
  for (const std::string& id : several) found.erase(id);
  return found;
}

std::string setting_of(const Subject& subject, const Values& a, const Values& b) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const result::Setting& s : subject.settings) {
    const KeyOf key = key_of(subject, s.key);
    if (!a.identifies(s.key) || is_free(a, b, key)) continue;
    if (s.key == "policy.name" || !b.only(key)) values.emplace_back(s.key, a.text_of(s));
  }
  return label_of(values);
}

// "policy.budget of quest"
std::string full_name_of(const KeyOf& key) { return key.first.empty() ? key.second : key.second + " of " + key.first; }

std::vector<std::string> differences(const Values& a, const Values& b) {
  std::vector<std::string> list;
  for (const auto& [key, values] : b.all()) {
    if (!a.identifies(key.second) || !a.knows(key) || !is_free(a, b, key)) continue;
    list.push_back(fmt::format("{}: {} against {}", full_name_of(key), *a.only(key), *b.only(key)));
  }
  return list;
}

// Keys of which no value occurs in both sets, so that nothing can be paired.
std::vector<std::string> disjoint(const Values& a, const Values& b) {
  std::vector<std::string> list;
  for (const auto& [key, of_b] : b.all()) {
    if (!a.identifies(key.second) || !a.knows(key) || is_free(a, b, key)) continue;
    const std::set<std::string>& of_a = a.all().at(key);
    if (std::ranges::any_of(of_a, [&of_b = of_b](const auto& value) { return of_b.contains(value); })) continue;
    list.push_back(fmt::format("{}: {} against {}", full_name_of(key), fmt::join(of_a, ", "), fmt::join(of_b, ", ")));
  }
  return list;
}

// Machines that have other names in the two sets.
std::vector<std::string> altered(const MachineNames& a, const MachineNames& b) {
  std::vector<std::string> list;
  for (const auto& [base, name] : b) {
    const auto of_a = a.find(base);
    if (of_a != a.end() && of_a->second != name)
      list.push_back(fmt::format("hardware: {} against {}", of_a->second, name));
  }
  return list;
}

// Numbers of a machine in both sets whose values or uncertainties differ.
std::vector<std::string> changed_numbers(const StoreResults& before, const StoreResults& after) {
  std::vector<std::string> list;
  for (const auto& [machine, numbers] : after.machines) {
    const auto old = before.machines.find(machine);
    if (old == before.machines.end()) continue;
    for (const result::MachineNumber& n : numbers) {
      const auto was =
          std::ranges::find_if(old->second, [&](const result::MachineNumber& o) { return o.key == n.key; });
      if (was == old->second.end()) {
        list.push_back(fmt::format("{}: {} is new", machine, n.key));
      } else if (n.value && was->value && *n.value != *was->value) {
        list.push_back(fmt::format("{}: {} {:.4g}, {:.4g} {}", machine, n.key, *was->value, *n.value, n.unit));
      } else if (n.source != was->source || n.uncertainty != was->uncertainty) {
        list.push_back(fmt::format("{}: {} has another source or uncertainty", machine, n.key));
      }
    }
  }
  return list;
}

struct Reversal {
  const Pair* pair;
  double before, after;
  Comparison comparison;  // after over before

  bool none() const { return std::abs(std::log(comparison.times)) < kNoChange; }
  bool beyond() const { return comparison.beyond_uncertainty(); }
};

// Changes in the pairs of which both have the metric.
std::vector<Reversal> changes_of(const MatchedResults& matched, const StoreResults& before, const StoreResults& after,
                                 const Metric& metric) {
  std::vector<Reversal> list;
  for (const Pair& pair : matched.pairs) {
    const Result &a = before.results[pair.before], &b = after.results[pair.after];
    const auto of_a = result::value(a, metric), of_b = result::value(b, metric);
    if (!a.has_times() || !b.has_times() || !of_a || !of_b) continue;
    if (*of_a == 0 && *of_b == 0) continue;  // such as pinned memory of a policy that stays on the GPU
    list.push_back({&pair, *of_a, *of_b, compare(b, a, metric)});
  }
  std::ranges::stable_sort(list, [](const Reversal& a, const Reversal& b) {
    return std::abs(std::log(a.comparison.times)) > std::abs(std::log(b.comparison.times));
  });
  return list;
}

std::string pairs_text(std::size_t n) { return fmt::format("{} {}", n, n == 1 ? "pair" : "pairs"); }

// The change as a factor in the metric's own direction.
double in_own_unit(const Metric& metric, double times) {
  return metric.better == result::Better::kHigher ? times : 1 / times;
}

Interval interval_of(const Metric& metric, const Reversal& c) {
  const double low = in_own_unit(metric, c.comparison.interval.low),
               high = in_own_unit(metric, c.comparison.interval.high);
  return {std::min(low, high), std::max(low, high)};
}

std::string line_of(const Metric& metric, const Reversal& c) {
  const auto [low, high] = interval_of(metric, c);
  const double times = in_own_unit(metric, c.comparison.times);
  std::string ratio;
  if (metric.unit == result::Unit::kShare) {
    ratio = fmt::format("{} points", format_change(100 * (c.after - c.before), 2));  // ratios of small shares mislead
  } else {
    const bool small = std::abs(times - 1) < 0.05;
    const auto text = [small](double t) {
      return small ? fmt::format("{:+.2g}", 100 * (t - 1)) : fmt::format("{:.3g}", t);
    };
    ratio = text(times) + (small ? " %" : " times");
    if (low != high) ratio += fmt::format(" (80 %: {} to {}{})", text(low), text(high), small ? " %" : "");
  }
  return fmt::format("{}: {} before, {} after, {}{}", c.pair->setting, format_value(metric, c.before),
                     format_value(metric, c.after), ratio, c.beyond() ? "" : ", within its interval");
}

Answer answer_of(const Metric& metric, const std::vector<Reversal>& list, const StoreResults& before,
                 const StoreResults& after) {
  Answer answer;
  answer.kind = kChanges.name;
  answer.question = fmt::format("{}: what changed from {} to {}?", metric.label, before.name, after.name);
  std::size_t same = 0, within = 0, better = 0, worse = 0;
  answer.data = {{"metric", metric.path}, {"before", before.name}, {"after", after.name}, {"changes", json::array()}};
  for (const Reversal& c : list) {
    if (c.none()) {
      ++same;
      continue;
    }
    ++(!c.beyond() ? within : c.comparison.first_better() ? better : worse);
    const auto [low, high] = interval_of(metric, c);
    answer.data["changes"].push_back({{"setting", c.pair->setting},
                                      {"before", c.before},
                                      {"after", c.after},
                                      {"times", in_own_unit(metric, c.comparison.times)},
                                      {"interval", {low, high}},
                                      {"beyond", c.beyond()},
                                      {"better", c.comparison.first_better()}});
    answer.say("{}", line_of(metric, c));
  }
  const Reversal& largest = list.front();
  answer.text = fmt::format(
      "Of {}, {} improved and {} got worse by more than their uncertainty, {} changed by less, and {} stayed the same. "
      "Largest change: {}.",
      pairs_text(list.size()), better, worse, within, same, line_of(metric, largest));
  answer.runs = static_cast<int>(2 * list.size());
  return answer;
}

// Describes the pairs of which only one side fits.
std::vector<std::string> changed_status(const MatchedResults& matched, const StoreResults& before,
                                        const StoreResults& after) {
  std::vector<std::string> list;
  for (const Pair& pair : matched.pairs) {
    const Result &a = before.results[pair.before], &b = after.results[pair.after];
    if (a.status != b.status)
      list.push_back(
          fmt::format("{}: {} before, {} after", pair.setting, status_name(a.status), status_name(b.status)));
  }
  return list;
}

// Ratios of the metric after to before, the largest changes.
Chart draw_changes(const json& data, const Machines&) {
  constexpr std::size_t kMostChanges = 15;
  json rows = json::array();
  double least = 1, most = 1;
  for (const json& change : data.at("changes")) {  // the largest come first
    if (rows.size() == kMostChanges) break;
    if (change.at("times").is_null() || change.at("times") <= 0) continue;  // change from or to nothing
    const double times = change.at("times"), low = change.at("interval").at(0), high = change.at("interval").at(1);
    const bool better = change.at("better"), beyond = change.at("beyond");
    least = std::min({least, low, times}), most = std::max({most, high, times});
    rows.push_back(
        {{"row", rows.size()},
         {"setting", change.at("setting")},
         {"times", times},
         {"low", low},
         {"high", high},
         {"beyond", beyond},
         {"color", better ? "signs/less" : "signs/more"},
         {"text", std::abs(times - 1) < 0.05 ? fmt::format("{:+.2g} %", 100 * (times - 1)) : number_text(times)},
         {"change", std::string(better ? "better" : "worse") + (beyond ? "" : ", within its interval")}});
  }
  if (rows.empty()) return {};
  constexpr double kWide = 4;  // a logarithmic axis over a smaller ratio has few ticks
  return {
      .spec = "plan_changes",
      .data = {{"changes", rows}},
      .signals = {{"least", least},
                  {"most", most},
                  {"x_title", fmt::format("{}, {} / {}", axis_title(metric_of(data)),
                                          data.at("after").get<std::string>(), data.at("before").get<std::string>())}},
      .scales = {{"x", {{"type", most > kWide * least ? "log" : "linear"}, {"zero", false}, {"nice", false}}}}};
}

}  // namespace

constinit const Kind kChanges{"changes", draw_changes}, kCompared{"compared"};

MatchedResults match_settings(const StoreResults& before, const StoreResults& after) {
  const MachineNames machines_a = machines_by_base(before.results), machines_b = machines_by_base(after.results);
  // A single machine on each side may differ throughout, whatever its name.
  const bool by_base = machines_a.size() > 1 && machines_b.size() > 1;
  const Values a(before.results, by_base), b(after.results, by_base);
  const auto indices_a = indices(before.results, a, b), indices_b = indices(after.results, a, b);
  MatchedResults matched;
  matched.differences = differences(a, b);
  if (by_base) {
    for (std::string& text : altered(machines_a, machines_b)) matched.differences.push_back(std::move(text));
  }
  for (const auto& [id, index] : indices_b) {
    const auto partner = indices_a.find(id);
    if (partner == indices_a.end()) continue;
    matched.pairs.push_back({partner->second, index, setting_of(after.results[index].subject, a, b)});
  }
  std::ranges::sort(matched.pairs, [](const Pair& x, const Pair& y) { return x.after < y.after; });
  if (matched.pairs.empty()) matched.disjoint = disjoint(a, b);
  matched.only_before = before.results.size() - matched.pairs.size();
  matched.only_after = after.results.size() - matched.pairs.size();
  return matched;
}

std::vector<Answer> changes(const StoreResults& before, const StoreResults& after) {
  const MatchedResults matched = match_settings(before, after);
  Answer compared;
  compared.kind = kCompared.name;
  compared.question = fmt::format("How does {} differ from {}?", after.name, before.name);
  std::vector<Answer> answers;
  std::vector<std::string> unchanged;
  for (const char* name : kComparedMetrics) {
    const Metric& metric = *result::find_metric(name);
    const std::vector<Reversal> list = changes_of(matched, before, after, metric);
    if (list.empty()) continue;
    if (list.front().none()) {
      unchanged.push_back(fmt::format("{} ({})", metric.label, pairs_text(list.size())));
    } else {
      answers.push_back(answer_of(metric, list, before, after));
    }
  }
  compared.text =
      fmt::format("{} of experiments have equal settings{}; {} of {} and {} of {} have no partner.",
                  pairs_text(matched.pairs.size()), matched.differences.empty() ? "" : " apart from those given below",
                  matched.only_before, before.name, matched.only_after, after.name);
  const auto add = [&compared](const std::string& title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    compared.details.push_back(title);
    for (const std::string& line : lines) compared.details.push_back("  " + line);
  };
  const std::vector<std::string> status = changed_status(matched, before, after);
  if (!matched.differences.empty())
    compared.text += fmt::format(" The two differ throughout in {}.", fmt::join(matched.differences, "; "));
  if (!matched.disjoint.empty())
    compared.text += fmt::format(" No value is common to both for {}.", fmt::join(matched.disjoint, "; "));
  if (!status.empty()) compared.text += fmt::format(" The status of {} changed.", pairs_text(status.size()));
  if (answers.empty() && !matched.pairs.empty()) compared.text += " No number changed by 0.1 % or more.";
  add("Another status:", status);
  add("Numbers of machines that changed:", changed_numbers(before, after));
  add("Metrics that stayed within 0.1 % throughout:", unchanged);
  compared.data = {{"before", before.name},
                   {"after", after.name},
                   {"pairs", matched.pairs.size()},
                   {"only_before", matched.only_before},
                   {"only_after", matched.only_after},
                   {"differences", matched.differences}};
  compared.runs = static_cast<int>(before.results.size() + after.results.size());
  answers.insert(answers.begin(), std::move(compared));
  return answers;
}

}  // namespace kvcast::plan
