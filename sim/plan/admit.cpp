#include "plan/admit.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/units.hpp"
#include "config/run.hpp"
#include "plan/best_batch.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

using config::Node;

constexpr std::int64_t kSmallPass = 2048;  // tokens of a prefill pass on GPUs with little memory

struct Change {
  std::vector<std::pair<std::string, std::string>> values;
  std::string text() const {
    std::string all;
    for (const auto& [key, value] : values) all += fmt::format("{}{} {}", all.empty() ? "" : ", ", key, value);
    return all;
  }
};

std::vector<Change> changes_of(const config::Run& run) {
  using config::Precision;
  const config::Workload& w = run.workload;
  std::vector<Change> all;
  const bool large_pass = w.prefill_chunk == 0 || w.prefill_chunk > kSmallPass || w.prefill_batch != 1;
  const Change chunk{{{"workload.prefill_chunk", std::to_string(kSmallPass)}, {"workload.prefill_batch", "1"}}};
  if (large_pass) all.push_back(chunk);
  Change smaller;
  if (run.model.cache == Precision::kBf16) smaller.values.emplace_back("deployment.kv_cache", "fp8");
  if (!smaller.values.empty()) all.push_back(smaller);
  if (run.model.weights == Precision::kBf16) all.push_back({{{"deployment.weights", "fp8"}}});
  if (run.model.weights == Precision::kBf16) smaller.values.emplace_back("deployment.weights", "fp8");
  if (smaller.values.size() > 1) all.push_back(smaller);
  if (large_pass && !smaller.values.empty()) {
    Change both = chunk;
    both.values.insert(both.values.end(), smaller.values.begin(), smaller.values.end());
    all.push_back(both);
  }
  all.push_back({{{"deployment.tensor_parallel", std::to_string(2 * run.deployment.tensor_parallel)}}});
  return all;
}

Node changed(Node run, const Change& change) {
  for (const auto& [key, value] : change.values) run = run.with(key, Node::scalar(value, {}));
  return run;
}

std::optional<Admission> first_that_fits(const Node& run, const std::vector<Change>& changes,
                                         Experiments& experiments) {
  std::optional<Admission> in_doubt;
  for (const Change& change : changes) {
    const ResultPtr result = experiments.run(changed(run, change));
    if (!result->has_times()) continue;
    if (!result->borderline) return Admission{change.text(), result};
    if (!in_doubt) in_doubt = {change.text(), result};
  }
  return in_doubt;
}

}  // namespace

std::optional<Admission> nearest_that_fits(const Node& node, Experiments& experiments) {
  const config::Run run = config::read_run(node);
  if (run.workload.batch > 1) {
    std::vector<BatchLine> lines{
        {node, *result::find_metric("request.requests_per_s"), {}, std::int64_t{run.workload.batch} - 1}};
    search(lines, experiments);
    if (const ResultPtr best = lines.front().best()) {
      return Admission{fmt::format("workload.batch {}", best->subject.batch), best};
    }
  }
  const Node one = run.workload.batch > 1 ? node.with("workload.batch", Node::scalar("1", {})) : node;
  std::optional<Admission> found = first_that_fits(one, changes_of(run), experiments);
  if (!found) {
    const Node evicting = Node::map({{"name", Node::scalar("snapkv", {})}, {"budget", Node::scalar("2048", {})}}, {});
    const ResultPtr result = experiments.run(one.with("policy", evicting));
    if (result->has_times()) found = {"policy snapkv, budget 2048", result};
  }
  if (found && run.workload.batch > 1) found->change += ", workload.batch 1";
  return found;
}

std::string admission_text(const std::optional<Admission>& admission) {
  if (!admission) return "no smaller batch, smaller chunk, precision of 8 bits, second GPU or evicting policy fits";
  const result::Result& r = *admission->result;
  return fmt::format("the nearest setting that fits{} has {} (peak of {} of {})", r.borderline ? ", borderline," : "",
                     admission->change, format_quantity(r.experiment.hbm.peak, Dimension::kBytes),
                     format_quantity(r.experiment.hbm.capacity, Dimension::kBytes));
}

}  // namespace kvcast::plan
