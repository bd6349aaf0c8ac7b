// Access to the parts of a cost.
#pragma once

#include <catch2/catch.hpp>

#include "hardware/cost_model.hpp"
#include "unit/hardware/round_machine.hpp"

namespace kvcast::tests {

inline hardware::CostModel round_model(config::Framework::Launch launch = config::Framework::Launch::kCudaGraph) {
  return {round_machine(), framework(launch)};
}

// Amount demanded of a resource, 0 if none.
inline double amount(const hardware::Cost& cost, hardware::Resource resource) {
  double sum = 0;
  for (const hardware::Demand& d : cost.demands) sum += d.resource == resource ? d.amount : 0;
  return sum;
}

// Microseconds, for numbers worked out by hand.
inline Approx us(double microseconds) { return Approx(microseconds * 1e-6).epsilon(1e-6); }
inline double latency_s(const hardware::Cost& cost) { return to_seconds(cost.latency); }

}  // namespace kvcast::tests
