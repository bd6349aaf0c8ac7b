// The rows of the table of metrics; see metric.hpp.
#pragma once

#include <optional>
#include <vector>

#include "result/metric.hpp"

namespace kvcast::result {

std::vector<Metric> metric_rows();
// The rows of a request in a service of equal ones (request_rows.cpp).
void add_request_rows(std::vector<Metric>& rows);
// Rows of a queue of requests (result/result.hpp).
void add_service_rows(std::vector<Metric>& rows);

// Price of all GPUs for this long; nothing if the run states none.
std::optional<double> price_of(const Result& r, double seconds);

}  // namespace kvcast::result
