#include "validate/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "accuracy/score.hpp"
#include "base/csv.hpp"
#include "base/units.hpp"
#include "metrics/errors.hpp"
#include "result/metric.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

constexpr double kLoadTolerance = 0.15;
// Targets in percent: TPOT and throughput of a campaign, means of a replayed trace, blocks of its cache.
constexpr double kMedian = 8, kP90 = 25, kTraceTpot = 5, kTraceE2e = 8, kBlocks = 2;
constexpr double kRankOrder = 0.98;

// The limit of a target that is missed is the error of today, rounded up: no change may make it worse.
struct Reached {
  const char* campaign;
  const char* kind;
  double median, p90, over_batch;
};
constexpr Reached kReached[] = {{"ankdeshm", "throughput", 62.5, 209, 1},
                                {"ankdeshm", "TPOT", 76, 92.5, 1},
                                {"dstack", "throughput", 24.5, 52.5, 1},
                                {"dstack", "TPOT", 21, 31.5, 1},
                                {"GPUStack", "throughput", kMedian, 38.5, 1},
                                {"GPUStack", "TPOT", kMedian, 29.5, 1},
                                {"KubeAI", "throughput", 15, 33, 10},
                                {"KubeAI", "TPOT", 11.5, 40, 1},
                                {"llm-d", "TPOT", 150, 258, 1},
                                {"SGLang", "TPOT", 14.5, kP90, 1},
                                {"natoscott", "TPOT", 18, 30, 1},
                                {"transformers", "TPOT", 34.5, 79, 1}};

struct ReachedOfTrace {
  const char* id;
  double tpot, e2e, order;
};
constexpr ReachedOfTrace kReachedOfTraces[] = {{"S0002", 5.2, kTraceE2e, kRankOrder}};

std::string unit_of(const std::string& name) {
  if (name == "duration_s") return "s";
  if (name == "requests_per_s") return "requests/s";
  return kind_of_number(name) == "throughput" ? "tokens/s" : "ms";
}

Case case_of(const ServedPoint& p, const std::string& name) {
  Case c;
  c.id = p.point.id + " " + name;
  c.group = fmt::format("{}, {}{}", p.point.campaign, kind_of_number(name),
                        p.point.chosen_knowing ? ", known beforehand" : "");
  c.quantity = p.point.group, c.unit = unit_of(name), c.source = p.point.source;
  c.chosen_knowing = p.point.chosen_knowing, c.tolerance = kLoadTolerance;
  c.expected = p.point.measured.at(name);
  c.predicted = predicted_number(p, name);
  if (!c.predicted) {
    c.note = !p.served.error.empty() ? p.served.error : "all requests are rejected: none fits in a pass or in memory";
  } else {
    c.origin = p.served.service->origin;
    if (p.batch.has_times()) c.baseline = batch_number(name, p.batch, p.mean);
    if (const auto range = served_interval(name, p.served); range && range->high > range->low) {
      c.low = *c.predicted * range->low, c.high = *c.predicted * range->high;
    }
  }
  c.verdict = verdict_of(c, false);
  return c;
}

// Errors of the numbers of one kind of a campaign.
struct Line {
  std::string campaign, kind;
  bool known = false;
  std::vector<double> errors, batch, with_batch, first, now_of_first;
  std::vector<double> steps;  // of the batch's decode steps alone, for TPOT
  int covered = 0, intervals = 0;
  std::size_t unanswered = 0;

  void add(const Case& c, const std::optional<double>& first_prediction) {
    const auto error = relative_error(c);
    if (!error) {
      ++unanswered;
      return;
    }
    errors.push_back(*error);
    if (c.baseline) batch.push_back(*c.baseline / *c.expected - 1), with_batch.push_back(*error);
    if (first_prediction) first.push_back(*first_prediction / *c.expected - 1), now_of_first.push_back(*error);
    if (!c.low || !c.high) return;
    ++intervals;
    covered += *c.low <= *c.expected && *c.expected <= *c.high ? 1 : 0;
  }
};

std::vector<Line> lines_of(const std::vector<ServedPoint>& points, const Suite& suite, const FirstPredictions& first,
                           bool apart) {
  std::vector<Line> lines;
  std::size_t next = 0;
  for (const ServedPoint& p : points) {
    for (const std::string& name : p.point.compared) {
      const Case& c = suite.cases[next++];
      const bool known = apart && p.point.chosen_knowing;
      const std::string kind = kind_of_number(name);
      auto at = std::ranges::find_if(lines, [&](const Line& line) {
        return line.campaign == p.point.campaign && line.kind == kind && line.known == known;
      });
      if (at == lines.end()) {
        Line line;
        line.campaign = p.point.campaign, line.kind = kind, line.known = known;
        at = lines.insert(lines.end(), std::move(line));
      }
      const auto found = first.find({p.point.id, name});
      at->add(c, found == first.end() ? std::nullopt : std::optional(found->second));
      if (kind == "TPOT" && c.predicted && p.batch.has_times() && !name.starts_with("e2e")) {
        at->steps.push_back(1e3 * p.batch.experiment.tpot_mean_s / *c.expected - 1);
      }
    }
  }
  return lines;
}

json summary_of(const std::vector<double>& errors) {
  if (errors.empty()) return {};
  const metrics::ErrorSummary s = metrics::summarise_errors(errors);
  return {{"n", s.n}, {"median", s.median}, {"p90", s.p90}, {"bias", s.bias}};
}

json line_json(const Line& line) {
  return {{"campaign", line.campaign},
          {"kind", line.kind},
          {"known", line.known},
          {"unanswered", line.unanswered},
          {"now", summary_of(line.errors)},
          {"batch", summary_of(line.batch)},
          {"with_batch", summary_of(line.with_batch)},
          {"batch_steps", summary_of(line.steps)},
          {"first", summary_of(line.first)},
          {"now_of_first", summary_of(line.now_of_first)},
          {"intervals", line.intervals},
          {"covered", line.covered}};
}

void add_budgets(const std::vector<Line>& lines, Suite& suite) {
  for (const Line& line : lines) {
    if (line.kind != "TPOT" && line.kind != "throughput") continue;
    Reached limits{"", "", kMedian, kP90, 1};
    for (const Reached& r : kReached) {
      if (line.campaign == r.campaign && line.kind == r.kind) limits = r;
    }
    const metrics::ErrorSummary now = metrics::summarise_errors(line.errors);
    const std::string name = line.campaign + ", " + line.kind;
    const auto value = [&](double x) { return now.n > 0 ? std::optional<double>(x) : std::nullopt; };
    const auto add = [&](const char* what, const char* unit, double limit, double target, std::optional<double> is) {
      const std::string missed = limit == target ? "" : fmt::format(" (target {:g})", target);
      suite.budgets.push_back({name + what + missed, unit, limit, is});
    };
    add(", median error", "%", limits.median, kMedian, value(100 * now.median));
    add(", p90 error", "%", limits.p90, kP90, value(100 * now.p90));
    const double batch = metrics::summarise_errors(line.batch).median;
    if (line.batch.empty() || batch <= 0) continue;
    const double own = metrics::summarise_errors(line.with_batch).median;
    add(", median error over that of a static batch", "", limits.over_batch, 1, own / batch);
  }
}

// Rank correlation of the times of first tokens.
std::optional<double> order_of_first_tokens(const ServedPoint& p) {
  std::vector<double> predicted, measured;
  for (const ServedRequest& r : p.requests) {
    const auto i = static_cast<std::size_t>(r.id);
    if (i >= p.measured.size()) return {};
    predicted.push_back(r.first_token), measured.push_back(p.measured[i].first_token);
  }
  if (predicted.size() < 2) return {};
  return accuracy::spearman(predicted, measured);
}

// Errors of a replayed trace over the measured times of its requests.
json trace_json(const ServedPoint& p) {
  json out = {{"id", p.point.id}, {"group", p.point.group}, {"error", json::object()}};
  for (const char* const time : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    for (const char* const statistic : {"mean", "p50", "p90", "p99"}) {
      const std::string name = std::string(time) + "." + statistic;
      const auto predicted = served_number(name, p.requests, 0), measured = served_number(name, p.measured, 0);
      if (predicted && measured) out["error"][name] = *predicted / *measured - 1;
    }
  }
  if (const auto order = order_of_first_tokens(p)) out["order"] = *order;
  return out;
}

void add_traces(const std::vector<ServedPoint>& points, Suite& suite) {
  json& traces = suite.detail["traces"] = json::array();
  for (const ServedPoint& p : points) {
    if (p.measured.empty() || !p.served.service) continue;
    const json& trace = traces.emplace_back(trace_json(p));
    ReachedOfTrace limits{"", kTraceTpot, kTraceE2e, kRankOrder};
    for (const ReachedOfTrace& r : kReachedOfTraces) {
      if (p.point.id == r.id) limits = r;
    }
    const auto add = [&](const char* what, const char* unit, double limit, double target, const json& value) {
      const std::string missed = limit == target ? "" : fmt::format(" (target {:g})", target);
      suite.budgets.push_back({p.point.group + what + missed, unit, limit, value.get<double>()});
    };
    const auto percent = [&](const char* name) { return 100 * std::abs(trace["error"][name].get<double>()); };
    add(", mean TPOT", "%", limits.tpot, kTraceTpot, percent("tpot_ms.mean"));
    add(", mean E2E", "%", limits.e2e, kTraceE2e, percent("e2e_ms.mean"));
    if (!trace.contains("order")) continue;
    add(", Spearman of first tokens", "", limits.order, kRankOrder, trace["order"]);
    suite.budgets.back().at_least = true;
  }
}

// Tokens of the cache of each group that states them.
void add_capacities(const std::vector<ServedPoint>& points, Suite& suite) {
  json& all = suite.detail["kv_capacity"] = json::array();
  std::string last;
  for (const ServedPoint& p : points) {
    if (!p.point.kv_capacity_tokens || !p.served.service || p.point.compared.empty()) continue;
    if (p.point.group == last) continue;
    last = p.point.group;
    const double predicted = p.served.service->kv_capacity_tokens, stated = *p.point.kv_capacity_tokens;
    all.push_back({{"group", last}, {"predicted", predicted}, {"stated", stated}});
    suite.budgets.push_back({last + ", tokens of the cache", "%", kBlocks, 100 * std::abs(predicted / stated - 1)});
  }
}

void add_refusals(const Suite& suite, json& detail) {
  json& refused = detail["unanswered"] = json::object();
  for (const Case& c : suite.cases) {
    if (!c.predicted) refused[c.quantity] = c.note;
  }
}

}  // namespace

std::optional<double> predicted_number(const ServedPoint& p, const std::string& name) {
  if (!p.served.service || p.requests.empty()) return {};
  if (const auto number = served_number(name, p.requests, p.point.skipped)) return number;
  const result::Metric* const metric = result::find_metric(path_of_number(name));
  if (metric == nullptr || metric->unit != result::Unit::kSeconds) return {};
  const auto seconds = result::value(p.served, *metric);
  if (!seconds) return {};
  return *seconds * 1e3;
}

Suite serving_suite(const std::vector<ServedPoint>& points, const FirstPredictions& first) {
  Suite suite;
  suite.name = "serving";
  suite.question = "Are latencies and throughput of engines under load predicted, and better than by a static batch?";
  suite.baseline_is = "a static batch";
  suite.detail = json::object();
  for (const ServedPoint& p : points) {
    for (const std::string& name : p.point.compared) suite.cases.push_back(case_of(p, name));
  }
  for (const Line& line : lines_of(points, suite, first, true)) suite.detail["lines"].push_back(line_json(line));
  add_budgets(lines_of(points, suite, first, false), suite);
  add_traces(points, suite);
  add_capacities(points, suite);
  add_pairs(points, suite);
  add_refusals(suite, suite.detail);
  return suite;
}

FirstPredictions read_first_predictions(const std::string& path) {
  FirstPredictions all;
  for (const CsvCells& row : read_table(path, "the first predictions", {"id", "metric", "predicted", "measured"})) {
    all[{row.text("id"), row.text("metric")}] = row.number("predicted");
  }
  return all;
}

std::string first_predictions_text(const Suite& suite) {
  std::string text = "id,metric,predicted,measured\n";
  for (const Case& c : suite.cases) {
    if (!c.predicted) continue;
    const std::size_t blank = c.id.find(' ');
    text +=
        fmt::format("{},{},{:.6g},{:.6g}\n", c.id.substr(0, blank), c.id.substr(blank + 1), *c.predicted, *c.expected);
  }
  return text;
}

}  // namespace kvcast::validate
