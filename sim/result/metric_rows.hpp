// The rows of the table of metrics; see metric.hpp.
#pragma once

#include <vector>

#include "result/metric.hpp"

namespace kvcast::result {

std::vector<Metric> metric_rows();

}  // namespace kvcast::result
