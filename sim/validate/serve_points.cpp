// Runs load points, and the static batches next to them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/csv.hpp"
#include "base/units.hpp"
#include "result/metric.hpp"
#include "validate/serving.hpp"

namespace kvcast::validate {
namespace {

using config::Node;

// Times of the uncompressed cache do not depend on the text: one small replay serves.
constexpr const char* kSmallTrace = "{recipe: needle, layers: 1, steps: 4}";
constexpr std::size_t kWithInterval = 3;  // points of a group whose interval is simulated
// Mean lengths that are observed and not written are rounded to two digits, so that runs share replays.
constexpr double kDigits = 100;

Node with_small_trace(const Node& config) {
  const Node* const policy = config.find("policy");
  const bool full = policy != nullptr && policy->kind() == Node::Kind::kScalar && policy->text() == "full";
  if (!full || config.find("trace") != nullptr || config.find("traces") != nullptr) return config;
  return config.with("trace", config::parse_yaml(kSmallTrace, "trace"));
}

// The first, the middle and the last point of each group.
std::set<std::size_t> with_intervals(const std::vector<LoadPoint>& points) {
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < points.size(); ++i) groups[{points[i].campaign, points[i].group}].push_back(i);
  std::set<std::size_t> chosen;
  for (const auto& [name, all] : groups) {
    const std::size_t n = std::min(kWithInterval, all.size());
    for (std::size_t k = 0; k < n; ++k) chosen.insert(all[n == 1 ? 0 : k * (all.size() - 1) / (n - 1)]);
  }
  return chosen;
}

double rounded(double tokens) {
  double unit = 1;
  while (tokens / unit >= kDigits) unit *= 10;
  return std::max(1.0, std::round(tokens / unit) * unit);
}

MeanRequest mean_of(const LoadPoint& point, const std::vector<ServedRequest>& requests) {
  MeanRequest mean{0, 0, static_cast<double>(requests.size())};
  for (const ServedRequest& r : requests) {
    mean.prompt_tokens += static_cast<double>(r.prompt_tokens) / mean.requests;
    mean.output_tokens += static_cast<double>(r.output_tokens) / mean.requests;
  }
  mean.prompt_tokens = std::round(point.prompt_tokens.value_or(rounded(mean.prompt_tokens)));
  mean.output_tokens = std::round(point.output_tokens.value_or(rounded(mean.output_tokens)));
  return mean;
}

study::Point batch_of(const ServedPoint& p, bool limited) {
  const double running = result::value(p.served, *result::find_metric("serving.running.mean")).value_or(1);
  const auto batch = std::clamp<long long>(p.point.clients > 0 ? p.point.clients : std::llround(running), 1, 4096);
  study::Point point;
  point.ask.effects = simulate::Effects::kNone;
  if (limited) point.ask.largest_batch = static_cast<int>(batch);
  const std::string workload = fmt::format("{{prompt_tokens: {:.0f}, decode_tokens: {:.0f}, batch: {}}}",
                                           p.mean.prompt_tokens, p.mean.output_tokens, limited ? 1 : batch);
  point.config = with_small_trace(p.point.config.without({"traffic", "scheduler"}))
                     .with("workload", config::parse_yaml(workload, "workload"));
  return point;
}

// Batches that do not fit are made as large as memory allows.
void add_batches(std::vector<ServedPoint>& all, const RunEach& run_each) {
  for (const bool limited : {false, true}) {
    std::vector<study::Point> runs;
    std::vector<ServedPoint*> of;
    for (ServedPoint& p : all) {
      if (!p.served.service || (limited && p.batch.status != result::Status::kOom)) continue;
      runs.push_back(batch_of(p, limited)), of.push_back(&p);
    }
    if (runs.empty()) continue;
    std::vector<result::Result> results = run_each(std::move(runs));
    for (std::size_t i = 0; i < of.size(); ++i) of[i]->batch = std::move(results[i]);
  }
}

}  // namespace

std::vector<ServedPoint> serve_points(const std::vector<LoadPoint>& points, const RunEach& run_each) {
  std::vector<ServedPoint> all(points.size());
  const std::set<std::size_t> wide = with_intervals(points);
  std::vector<study::Point> runs;
  for (std::size_t i = 0; i < points.size(); ++i) {
    all[i].point = points[i];
    study::Point& run = runs.emplace_back();
    run.config = with_small_trace(points[i].config);
    run.ask.effects = wide.contains(i) ? simulate::Effects::kTimes : simulate::Effects::kNone;
    run.ask.requests = [to = &all[i].requests](const auto& outcome) {
      if (outcome.rejected) return;
      const auto& r = outcome.request;
      to->push_back({r.id, r.prompt_tokens, r.output_tokens, to_seconds(r.arrival), to_seconds(outcome.first_token),
                     to_seconds(outcome.last_token)});
    };
  }
  std::vector<result::Result> results = run_each(std::move(runs));
  for (std::size_t i = 0; i < points.size(); ++i) {
    ServedPoint& p = all[i];
    p.served = std::move(results[i]);
    std::ranges::sort(p.requests, {}, &ServedRequest::id);
    if (!p.requests.empty()) p.mean = mean_of(p.point, p.requests);
    const Node* const file = config::find_below(p.point.config, "traffic.file");
    if (file != nullptr) p.measured = read_measured_requests(file->text());
  }
  add_batches(all, run_each);
  return all;
}

std::vector<ServedRequest> read_measured_requests(const std::string& path) {
  constexpr const char* kColumns[] = {"arrival_s", "prompt_tokens", "output_tokens", "first_token_s", "last_token_s"};
  std::vector<ServedRequest> requests;
  for (const CsvCells& row : read_table(path, "the trace", {})) {
    if (!std::ranges::all_of(kColumns, [&row](const char* column) { return row.has(column); })) return {};
    requests.push_back({std::ssize(requests), std::llround(row.number("prompt_tokens")),
                        std::llround(row.number("output_tokens")), row.number("arrival_s"), row.number("first_token_s"),
                        row.number("last_token_s")});
  }
  return requests;
}

}  // namespace kvcast::validate
