// Concludes a choice among settings: the best one, those that tie with it, its lead over the next, the Pareto front,
// and what excludes the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/units.hpp"
#include "plan/admit.hpp"
#include "plan/choose.hpp"
#include "plan/findings.hpp"
#include "plan/pareto.hpp"
#include "plan/setting_text.hpp"

namespace kvcast::plan {
namespace {

using nlohmann::json;

// " (score.share_of_full 92.63 %, 78.70 % to 97.32 %)", or nothing if the target is met.
std::string missed_text(const result::Result& result, const Target& target) {
  const auto value = result::value(result, *target.metric);
  const auto range = result::interval(result, *target.metric);
  if (!value || !range || target.holds_for(*value)) return "";
  const auto text = [&](double number) { return result::format_value(*target.metric, number); };
  return fmt::format(" ({} {}, {} to {})", target.metric->path, text(*value), text(range->low), text(range->high));
}

}  // namespace

double Choose::merit(const Candidate& s) const {
  const double value = s.number(metric_->path.c_str());
  return cheapest() ? -value : value;
}

json Choose::entry(const Candidate& s) const {
  json metrics =
      metrics_of(*s.result,
                 {"request.requests_per_s", "request.output_tokens_per_s", "request.latency_s", "request.ttft_s",
                  "request.tpot_s", "request.cost", "request.cost_per_million_output_tokens",
                  "request.cost_per_million_tokens", "decode.tokens_per_s", "decode.tpot_s.mean", "decode.tpot_s.p99",
                  "decode.cost_per_million_tokens", "prefill.ttft_s", "memory.hbm_peak_bytes"},
                 targets_);
  if (const auto score = s.score()) metrics["score"] = *score;
  // A short name that readers of earlier answers know.
  if (const auto cost = result::value(*s.result, cost_metric())) metrics["cost_per_million_tokens"] = *cost;
  json out = {{"config", json_of(s.values)},
              {"metrics", metrics},
              {"fit", result::fit_name(result::fit_of(*s.result))},
              {"binding_resource", result::bottleneck(s.result->experiment.step)}};
  for (const char* path : {"request.output_tokens_per_s", "decode.tokens_per_s"}) {
    const auto range = result::interval(*s.result, *result::find_metric(path));
    if (range) out["intervals"][path] = {range->low, range->high};
  }
  return out;
}

std::string Choose::numbers_text(const Candidate& s) const {
  const result::Result& r = *s.result;
  std::string text;
  const auto own = result::value(r, *metric_);
  if (own) {
    text = metric_->unit == result::Unit::kMoney ? fmt::format("{} {}", format_digits(*own, 3), cost_unit())
                                                 : result::format_value(*metric_, *own);
    if (const auto range = result::interval(r, *metric_))
      text += fmt::format(" ({} to {})", format_digits(range->low, 3), format_digits(range->high, 3));
    text += "; ";
  }
  text +=
      fmt::format("{}, TPOT {} while decoding, HBM {}", request_text(r), format_seconds(s.number("decode.tpot_s.mean")),
                  format_quantity(s.number("memory.hbm_peak_bytes"), Dimension::kBytes));
  if (r.borderline) text += ", borderline";
  if (const auto score = s.score()) text += fmt::format(", score {:.1f} %", 100 * *score);
  return text;
}

std::string Choose::cost_unit() const {
  if (metric_ == &cost_metric()) return "per million output tokens, prompts included";
  return label_in_sentence(*metric_);
}

std::string Choose::objective_text() const {
  if (metric_ == &cost_metric()) return "the cheapest per output token, prompts included";
  if (metric_ == &rate_metric()) return "the fastest, prompts included";
  return fmt::format("the best by {}", metric_->path);
}

Answer Choose::conclude(const std::vector<Candidate>& grid, const std::vector<const Candidate*>& good,
                        const std::map<std::string, int>& misses, Experiments& experiments) const {
  Answer out;
  out.kind = kChoose.name;
  out.question = fmt::format("Which of {} settings is {}{}{}?", total(), objective_text(),
                             lists_batches_ ? "" : ", each at its own best batch,",
                             targets_.empty() ? "" : " that meets " + target_text(targets_));
  out.data = {{"grid", total()},
              {"objective", metric_ == &cost_metric()   ? json(kCheapest)
                            : metric_ == &rate_metric() ? json(kFastest)
                                                        : json(metric_->path)},
              {"metric", metric_->path},
              {"batches", lists_batches_ ? "listed" : "searched"},
              {"best", json::array()},
              {"front", json::array()}};
  add_misses(misses, out);
  if (!needs_scores()) out.say("No score was requested, so there is no floor.");
  if (good.empty()) {
    out.text = "None of the settings fits and meets the targets.";
    return out;
  }
  const Candidate& best = *good.front();
  out.data["best"].push_back(entry(best));
  std::vector<const Candidate*> lines;  // the best of every other line
  for (const Candidate* s : good) {
    const bool known = same_line(*s, best) ||
                       std::ranges::any_of(lines, [s](const Candidate* other) { return same_line(*s, *other); });
    if (!known) lines.push_back(s);
  }
  std::vector<const Candidate*> tied;
  std::ranges::copy_if(lines, std::back_inserter(tied), [&](const Candidate* s) { return is_tie(lead(best, *s)); });
  for (const Candidate* s : tied) out.data["best"].push_back(entry(*s));
  add_front(good, std::ranges::count_if(grid, [](const Candidate& s) { return s.result != nullptr; }), out);
  out.text =
      fmt::format("{}: {}.{}", label_of(best.values), numbers_text(best),
                  tied.empty() ? "" : fmt::format(" {} tie{} with it.", tied.size(), tied.size() == 1 ? "s" : ""));
  if (!tied.empty()) out.details.insert(out.details.begin(), ties_text(best, tied));
  const auto next = std::ranges::find_if(lines, [&](const Candidate* s) { return !is_tie(lead(best, *s)); });
  if (next != lines.end()) {
    out.details.insert(out.details.begin(), lead_text(best, **next, experiments, out.data["lead"]));
  }
  const std::string moved = most_sensitive(*best.result, *metric_);
  out.details.push_back(fmt::format("Grounds: {}; bottleneck while decoding {}{}.", grounds_of(*best.result),
                                    result::bottleneck(best.result->experiment.step),
                                    moved.empty() ? "" : "; most sensitive to " + moved));
  return out;
}

std::string Choose::ties_text(const Candidate& best, const std::vector<const Candidate*>& tied) const {
  std::vector<std::string> names;
  TieRanges ranges;
  ranges.add(label_of(best.values), *best.result);
  for (const Candidate* s : tied) names.push_back(label_of(s->values)), ranges.add(names.back(), *s->result);
  const std::vector<std::string> texts = ranges.texts();
  return fmt::format("Within its uncertainty or a per cent: {}.{}", fmt::join(names, "; "),
                     texts.empty() ? " Nothing tells them apart."
                                   : fmt::format(" What tells them apart: {}.", fmt::join(texts, "; ")));
}

std::string Choose::lead_text(const Candidate& best, const Candidate& next, Experiments& experiments,
                              json& data) const {
  std::vector<BatchLine> lines{line_of(best), line_of(next)};
  search(lines, experiments);
  const ResultPtr own = lines[0].best(), other = lines[1].best();
  if (!own || !other) return "";
  const Comparison c = compare_best(lines[0], lines[1], *metric_);
  const std::int64_t equal = std::min(own->subject.batch, other->subject.batch);
  const auto at_equal = experiments.run(std::vector{lines[0].with_batch(equal), lines[1].with_batch(equal)});
  const Comparison e = compare(*at_equal[0], *at_equal[1], *metric_);
  data = {{"times", c.times},
          {"interval", {c.interval.low, c.interval.high}},
          {"batches", {own->subject.batch, other->subject.batch}},
          {"at_equal_batch", {{"batch", equal}, {"times", e.times}}}};
  return fmt::format(
      "It is {} as {} as the next, {} ({}), each at its own best batch ({} and {}); both at batch {}: {}{}.",
      times_text(c), cheapest() ? metric_ == &cost_metric() ? "cheap" : "good" : "fast",
      label_of(without_batch(next.values)), numbers_text(next), own->subject.batch, other->subject.batch, equal,
      times_text(e), c.beyond_uncertainty() ? "" : "; within uncertainty");
}

void Choose::add_front(const std::vector<const Candidate*>& good, std::int64_t simulated, Answer& out) const {
  constexpr std::size_t kShown = 8;
  std::vector<Goodness> points;
  for (const Candidate* s : good) points.push_back(s->goodness());
  std::vector<std::string> texts;
  std::map<Goodness, int> seen;
  for (const std::size_t i : pareto_front(points)) {
    out.data["front"].push_back(entry(*good[i]));
    if (seen[points[i]]++ == 0)
      texts.push_back(fmt::format("{}: {}", label_of(good[i]->values), numbers_text(*good[i])));
  }
  const std::size_t more = texts.size() - std::min(kShown, texts.size());
  texts.resize(texts.size() - more);
  out.say(
      "Pareto front over output tokens per second{}{} ({} experiments for {} settings; equal ones are listed once{}):",
      needs_scores() ? ", score" : "", priced_ ? ", memory and cost" : " and memory", simulated, total(),
      more > 0 ? fmt::format(", the {} best of {}", kShown, kShown + more) : "");
  for (const std::string& text : texts) out.say("  {}", text);
}

void Choose::add_misses(const std::map<std::string, int>& misses, Answer& out) const {
  std::vector<std::string> texts;
  for (const auto& [miss, count] : misses) {
    const std::string memory = memory_name(miss), what = memory.empty() ? miss : memory;
    texts.push_back(fmt::format("{} by {}", count, what));
  }
  if (!texts.empty()) {
    out.say("Excluded among the {} that were simulated: {}.", lists_batches_ ? "settings" : "batches",
            fmt::join(texts, "; "));
  }
  out.data["ruled_out"] = misses;
  if (beyond_engine_ == 0) return;
  out.say("Excluded without a simulation: {} by framework.max_batch, the most sequences that the engine serves.",
          beyond_engine_);
  out.data["ruled_out"]["framework.max_batch"] = beyond_engine_;
}

void Choose::add_perhaps(const std::vector<const Candidate*>& perhaps, Answer& out) const {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> texts, shown;
  out.data["uncertain"] = json::array();
  for (const Candidate* s : perhaps) {
    out.data["uncertain"].push_back(entry(*s));
    std::string name = label_of(without_batch(s->values));
    if (std::ranges::find(shown, name) != shown.end()) continue;
    shown.push_back(std::move(name));
    std::string text = label_of(s->values);
    for (const Target& t : targets_) text += missed_text(*s->result, t);
    texts.push_back(std::move(text));
  }
  if (texts.empty()) return;
  const std::size_t more = texts.size() - std::min(kShown, texts.size());
  texts.resize(texts.size() - more);
  out.say("Excluded, though their intervals reach the limit: {}{}.", fmt::join(texts, "; "),
          more > 0 ? fmt::format("; and {} more", more) : "");
}

void Choose::add_nearest(const std::vector<Candidate>& grid, const std::vector<const Candidate*>& good,
                         Experiments& experiments, Answer& out) const {
  const Candidate* nearest = nullptr;
  const Candidate* unfit = nullptr;
  double best_margin = 0;
  for (const Candidate& s : grid) {
    const bool admitted = std::ranges::any_of(good, [&s](const Candidate* g) { return same_line(*g, s); });
    if (!s.result || admitted || is_oracle(*s.result) || s.result->status == result::Status::kFailed) continue;
    if (s.result->experiment.oom && (unfit == nullptr || s.batch < unfit->batch)) unfit = &s;
    const double kept = margin(*s.result, targets_);
    if (kept > best_margin) best_margin = kept, nearest = &s;
  }
  if (nearest != nullptr) {
    std::vector<std::string> needed;
    for (const Target& t : targets_) {
      const auto value = result::value(*nearest->result, *t.metric);
      if (value && !t.holds_for(*value)) {
        needed.push_back(
            fmt::format("{} {} {}", t.metric->path, t.at_most ? "<=" : ">=", result::format_value(*t.metric, *value)));
      }
    }
    out.say("Of the settings without a batch that meets the targets, {} comes nearest; {} would admit it.",
            label_of(nearest->values), fmt::join(needed, " and "));
    out.data["nearest"] = entry(*nearest);
  }
  const bool lacks_memory = unfit != nullptr && std::ranges::none_of(grid, [&](const Candidate& s) {
                              return same_line(s, *unfit) && s.result && s.result->has_times();
                            });
  if (!lacks_memory) return;
  out.say("{} does not fit; {}.", label_of(unfit->values), admission_text(nearest_that_fits(unfit->run, experiments)));
}

namespace {

constexpr const char* kOutputRate = "request.output_tokens_per_s";
constexpr const char* kOutputCost = "cost_per_million_tokens";

// A setting as a point of a chart, by cost or memory.
json point_of(const json& entry, const std::string& best, bool by_cost) {
  const json &config = entry.at("config"), &metrics = entry.at("metrics");
  KeyValues values;
  for (const auto& [key, value] : config.items()) values.emplace_back(key, value);
  const std::string policy = config.value("policy.name", config.value("policy", "all settings"));
  const std::string machine = config.value("hardware", config.value("hardware.like", ""));
  const auto shown = [&metrics](const char* path) {
    return result::format_value(*result::find_metric(path), metrics.at(path));
  };
  const double memory = metrics.at("memory.hbm_peak_bytes").get<double>() / 1e9;
  json point = {{"label", label_of(values)},
                {"policy", policy},
                {"color", "variants/" + policy},
                {"machine", machine},
                {"machine_color", "machines/" + machine},
                {"tps", metrics.at(kOutputRate)},
                {"hbm", memory},
                {"x", by_cost ? metrics.at(kOutputCost) : json(memory)},
                {"ttft", shown("request.ttft_s")},
                {"latency", shown("request.latency_s")},
                {"best", best},
                {"tpot", shown("decode.tpot_s.mean")},
                {"bottleneck", entry.at("binding_resource")}};
  if (metrics.contains("score")) point["score"] = 100 * metrics.at("score").get<double>();
  if (metrics.contains(kOutputCost)) point["cost"] = number_text(metrics.at(kOutputCost));
  if (entry.contains("intervals")) {
    const json& range = entry.at("intervals").at(kOutputRate);
    point["tps_low"] = range.at(0), point["tps_high"] = range.at(1);
  }
  return point;
}

}  // namespace

// The best settings and the front, each once, by memory, or cost if all have one, and throughput.
Chart draw_choose(const json& data) {
  std::vector<std::pair<json, std::string>> entries;
  for (const std::string list : {"best", "front"}) {
    for (const json& e : data.at(list)) {
      const auto is_same = [&e](const auto& other) { return other.first.at("config") == e.at("config"); };
      if (std::ranges::any_of(entries, is_same)) continue;
      entries.emplace_back(e, entries.empty() ? "best" : list == "best" ? "open" : "");
    }
  }
  if (entries.empty()) return {};
  const bool priced =
      std::ranges::all_of(entries, [](const auto& e) { return e.first.at("metrics").contains(kOutputCost); });
  Chart chart{.spec = "plan_choose"};
  double least = INFINITY, most = 0;
  bool scored = false;
  std::map<std::string, json> policies, machines;
  std::map<std::pair<double, double>, json> by_x;  // faster ones first
  for (const auto& [entry, best] : entries) {
    const json point = point_of(entry, best, priced);
    const std::string policy = point["policy"], machine = point["machine"];
    policies[policy] = {{"policy", policy}, {"color", point["color"]}, {"symbol", policy}};
    machines[machine] = {{"machine", machine}, {"color", point["machine_color"]}};
    const double rate = point["tps"];
    by_x[{point["x"], -rate}] = {{"x", point["x"]}, {"tps", rate}};
    least = std::min(least, rate), most = std::max(most, rate);
    scored = scored || point.contains("score");
    chart.data["points"].push_back(point);
  }
  for (const auto& [policy, row] : policies) chart.variants.push_back(policy), chart.data["policies"].push_back(row);
  for (const auto& [machine, row] : machines) chart.data["machines"].push_back(row);
  // Points that no other one beats on both axes; the whole front has more dimensions than a chart.
  double fastest = 0;
  for (const auto& [x, row] : by_x) {
    if (row.at("tps") <= fastest) continue;
    fastest = row.at("tps");
    chart.data["edge"].push_back(row);
  }
  const bool several = machines.size() > 1;
  chart.signals = {{"priced", priced}, {"several_machines", several}, {"scored", scored}};
  chart.unused = {several || scored ? "color" : "machine", several || !scored ? "score" : "machine"};
  if (!several && !scored) chart.unused.emplace_back("symbol");
  chart.set_measure_axis(least, most);
  return chart;
}

}  // namespace kvcast::plan
