// The metrics that a page shows, from the table of metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "result/metric.hpp"

namespace kvcast::report {

// Metrics that have a short name of their own. Those of a single operation kind, such as "exposed.gemm", are shown as
// breakdowns instead.
std::vector<const result::Metric*> page_metrics();

// [{field, path, label, short, unit, scale, format, table}] of page_metrics(): `field` is the alias, `table` says
// whether the page's table has a column for it, `short` is that column's heading.
nlohmann::json page_metrics_json();

}  // namespace kvcast::report
