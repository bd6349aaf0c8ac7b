// The outcome of serving requests that come and go.
#pragma once

#include <cstdint>

#include "base/origin.hpp"
#include "serving/summary.hpp"

namespace kvcast::result {

struct Service {
  serving::Summary summary;
  bool served = true;             // some request was completed; otherwise there are no times and rates
  double kv_capacity_tokens = 0;  // tokens of the uncompressed cache that fit in the pool
  double link_busy_share = 0;     // of the duration, the host's link at its rate from host to device
  // Standard deviation of a mean time of requests over other draws of as many requests, as a share of it, and the
  // number of requests with which it would be 2 %; 0 for a trace, which is not drawn.
  double sampling_error = 0, enough_requests = 0;
  Origin origin = Origin::kExact;  // of the passes' times and of the pool
};

}  // namespace kvcast::result
