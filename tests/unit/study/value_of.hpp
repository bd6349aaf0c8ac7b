// The number of a result at a metric's path.
#pragma once

#include <catch2/catch.hpp>
#include <string>

#include "result/metric.hpp"
#include "result/result.hpp"

namespace kvcast::tests {

// The result must have it.
inline double value_of(const result::Result& r, const std::string& path) {
  const auto value = result::value(r, *result::find_metric(path));
  INFO(path);
  REQUIRE(value);
  return *value;
}

}  // namespace kvcast::tests
