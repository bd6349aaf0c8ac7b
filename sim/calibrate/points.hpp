// Measured kernel times as CSV: decode attention or GEMM, one point a row.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/op.hpp"

namespace kvcast::calibrate {

struct MeasuredPoint {
  std::string device, framework;
  std::string kernel;  // of the framework, where it has several; may be empty
  graph::Op op;        // attention reads the same KV pairs again and again, as benchmarks without a flush do
  double seconds = 0;
  bool held_out = false;  // kept away from fits
  double weight = 1;      // beside what its size gives it
  SourceLocation where;

  bool attention() const { return op.kind == graph::Kind::kAttention; }
  double kv_bytes() const;  // of attention, 0 for a GEMM
};

// Bytes that a benchmark finds in the L2 again, were it large enough: KV pairs, or weights.
double repeated_bytes(const MeasuredPoint& point);

// More than twice what the L2 holds, so that a step's kernels are like it; fits count such points three times.
bool beyond_cache(const MeasuredPoint& point, double l2_capacity);
double weight_of(const MeasuredPoint& point, double l2_capacity);

// Columns device, framework, latency_us and either batch, ctx, n_q, n_kv, head_dim (decode attention) or m, n, k
// (GEMM). Optional: kernel, and held_out (0 or 1); others are ignored. UserError names line and column of what is
// missing or no positive number.
std::vector<MeasuredPoint> read_points(const std::string& path);

}  // namespace kvcast::calibrate
