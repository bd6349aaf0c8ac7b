// Measured kernel times as CSV: decode attention or GEMM, one point a row.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/op.hpp"

namespace kvcast::validate {

struct MeasuredPoint {
  std::string device, framework;
  graph::Op op;
  double seconds = 0;
  SourceLocation where;
};

// Columns device, framework, latency_us and either batch, ctx, n_q, n_kv, head_dim (decode attention) or m, n, k
// (GEMM); others are ignored. UserError names line and column of what is missing or no positive number.
std::vector<MeasuredPoint> read_points(const std::string& path);

}  // namespace kvcast::validate
