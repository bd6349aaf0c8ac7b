// Bytes that work moves, by tier and direction; they follow from the work alone.
#pragma once

#include "graph/op.hpp"

namespace kvcast::graph {

struct ByteCounts {
  double hbm_read = 0, hbm_write = 0;  // kernels of the device; copies between host and device count as h2d and d2h
  double h2d = 0, d2h = 0;
  double cpu_dram = 0;    // read by CPU workers
  double kv_read = 0;     // part of hbm_read: KV pairs read by decode attention
  double h2d_pieces = 0;  // contiguous pieces that make up h2d

  ByteCounts& operator+=(const ByteCounts& other);
  ByteCounts scaled(double factor) const;
  bool operator==(const ByteCounts&) const = default;
};

ByteCounts traffic_of(const Work& work);

}  // namespace kvcast::graph
