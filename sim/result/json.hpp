// A result as JSON, the output of `kvcast run --json`. Numbers are at the paths of their metrics.
#pragma once

#include <nlohmann/json.hpp>

#include "result/metric.hpp"

namespace kvcast::result {

// Every number that the result has, at its metric's path; and
//   schema                  "kvcast-result/2"; the number changes when a key gets another name or meaning
//   config                  the resolved configuration
//   status, error, oom      whether it ran and fits; oom is null if it fits
//   intervals, origin       by metric path
//   origin_shares           share of a decode step and of the prefill by the origin of its costs
//   breakdown, prefill.breakdown, build.breakdown   [{kind, exposed_s, hidden_s, critical_s, uncertain_s}]
//   bottleneck (also as binding_resource)           the bottleneck of a decode step
//   sensitivities           [{keys, decode.tpot_s, prefill.ttft_s}], factors with the costs shorter and longer
//   memory.*_owners         [{owner, bytes}]
//   accuracy.task           the predicted task score; null without a task
//   score                   {benchmark, context, share_of_full, interval, tasks: [{task, share_of_full, interval}],
//                           origin} of a benchmark, or {benchmark, refused}; missing if none was requested. `rests_on`
//                           repeats `origin`: its name in schema 1, which had no number
//   timeline                spans of one decode step, if they were kept
nlohmann::json to_json(const Result& result);

// The description of a metric as `kvcast metrics --json` prints it: {path, alias, unit, better, label, definition,
// basis}.
nlohmann::json to_json(const Metric& metric);

// {what: "MACHINE: KEY", value, unit, origin, uncertainty, source}.
nlohmann::json to_json(const std::string& machine, const MachineNumber& number);

// The predicted task score: {task, known, share_of_full, interval, steps, recall_mean, recall_min, other_recall,
// origin, source}; null without one.
nlohmann::json to_json(const std::optional<TaskScore>& task);

// [{kind, exposed_s, hidden_s, critical_s, uncertain_s}], kinds without time left out. Exposed seconds add up to the
// time. critical_s: seconds of the critical path. uncertain_s: error of the exposed seconds if all costs of the kind
// err in the same direction.
nlohmann::json breakdown_json(const metrics::Attribution& time);

}  // namespace kvcast::result
