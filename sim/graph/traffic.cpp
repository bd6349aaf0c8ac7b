#include "graph/traffic.hpp"

namespace kvcast::graph {
namespace {

constexpr double kHalf = 2;  // bytes per element of a query or an output, however the cache is packed

struct Count {
  ByteCounts operator()(const Marker&) const { return {}; }
  ByteCounts operator()(const HostWork&) const { return {}; }
  ByteCounts operator()(const Gemm& w) const {
    const double row = w.groups * w.m * w.element_bytes;
    return {.hbm_read = w.stored_bytes() + row * w.k, .hbm_write = row * w.n};
  }
  ByteCounts operator()(const DecodeAttention& w) const {
    const double pairs = 2 * w.tokens * w.head_dim * w.element_bytes * w.kv_reads;
    const double dims = w.product_dims > 0 ? w.product_dims / 2 : w.head_dim;
    const double heads = w.rows * w.group * dims * kHalf;  // queries in, outputs out
    return {.hbm_read = pairs + heads, .hbm_write = heads + w.score_bytes, .kv_read = pairs};
  }
  ByteCounts operator()(const PrefillAttention& w) const {
    return {.hbm_read = w.read_bytes, .hbm_write = w.write_bytes, .kv_read = w.kv_bytes};
  }
  ByteCounts operator()(const Kernel& w) const { return {.hbm_read = w.read_bytes, .hbm_write = w.write_bytes}; }
  ByteCounts operator()(const TopK& w) const {
    return {.hbm_read = w.rows * w.columns * w.score_bytes, .hbm_write = w.rows * w.k * 4};
  }
  ByteCounts operator()(const Copy& w) const {
    const double bytes = w.runs * w.run_bytes;
    if (w.direction == Direction::kDeviceToHost) return ByteCounts{.d2h = bytes};
    return ByteCounts{.h2d = bytes, .h2d_pieces = w.runs * w.rows};
  }
  ByteCounts operator()(const Collective& w) const { return {.hbm_read = w.bytes, .hbm_write = w.bytes}; }
  ByteCounts operator()(const CpuWork& w) const { return {.cpu_dram = w.items * w.bytes_per_item}; }
};

}  // namespace

ByteCounts& ByteCounts::operator+=(const ByteCounts& other) {
  hbm_read += other.hbm_read, hbm_write += other.hbm_write;
  h2d += other.h2d, d2h += other.d2h;
  cpu_dram += other.cpu_dram, kv_read += other.kv_read, h2d_pieces += other.h2d_pieces;
  return *this;
}

ByteCounts ByteCounts::scaled(double factor) const {
  return {hbm_read * factor, hbm_write * factor, h2d * factor,       d2h * factor,
          cpu_dram * factor, kv_read * factor,   h2d_pieces * factor};
}

ByteCounts traffic_of(const Work& work) { return std::visit(Count{}, work); }

}  // namespace kvcast::graph
