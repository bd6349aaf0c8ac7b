// Measured kernel times as CSV: decode attention or GEMM, one point per row.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/op.hpp"

namespace kvcast::calibrate {

struct MeasuredPoint {
  std::string device, framework;
  std::string kernel;  // kernel of the framework, if it has several; may be empty
  graph::Op op;        // attention reads the same KV pairs repeatedly, as benchmarks without a flush do, unless cold
  double seconds = 0;
  bool held_out = false;  // excluded from fits
  double weight = 1;      // in addition to the weight by its size
  SourceLocation where;

  bool attention() const { return op.kind == graph::Kind::kAttention; }
  double kv_bytes() const;  // bytes of KV pairs of attention, 0 for a GEMM
};

// Bytes that a benchmark would find in the L2 again if it were large enough: KV pairs, or weights.
double repeated_bytes(const MeasuredPoint& point);

// Returns whether the point reads more than twice the capacity of the L2, like the kernels of a step; fits count such
// points three times.
bool beyond_cache(const MeasuredPoint& point, double l2_capacity);
double weight_of(const MeasuredPoint& point, double l2_capacity);

// Columns device, framework, latency_us and either batch, ctx, n_q, n_kv, head_dim (decode attention) or m, n, k
// (GEMM). Optional: kernel, held_out (0 or 1), and cold (0 or 1: the KV pairs were not in the L2); others are ignored.
// Throws UserError naming line and column of a latency that is missing, not positive or above 1e12 us, and of a size
// that is no whole number from 1 to 1e15.
std::vector<MeasuredPoint> read_points(const std::string& path);

}  // namespace kvcast::calibrate
