// A machine: one GPU, its host link and its host, every number with its origin, uncertainty and source.
//
// Read from configs/hardware/NAME.yaml (gpu and link) and configs/hosts/NAME.yaml. Points that come from calibration stand
// in the same files with origin `measured`.
#pragma once

#include <string>
#include <vector>

#include "base/origin.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// y over x, ascending x, interpolated linearly in between; outside [first x, last x] the end value holds and the result is
// marked extrapolated.
struct Curve {
  std::vector<double> x, y;
  Origin origin = Origin::kAssumed;
  double uncertainty = 0;
  std::string source;
};

struct Gpu {
  Value hbm_capacity;        // bytes
  Value hbm_bandwidth;       // B/s, the maker's
  Value stream_efficiency;   // fraction of hbm_bandwidth that streaming kernels reach
  Value tensor_flops;        // fp16 dense, fp32 accumulation
  Value vector_flops;        // fp32
  Value l2_bytes;
  Value sm_count;
  Value clock;               // Hz, under load; floors scale with it
  // Seconds that a kernel takes however small its work; one number a class.
  Value floor_gemm, floor_attention, floor_score, floor_topk, floor_small;
  Value gap_stream, gap_graph;      // between back-to-back kernels of a stream, of a CUDA graph
  Value attention_efficiency;       // fraction of hbm_bandwidth, decode attention on long contexts
  Value attention_tile;             // KV tokens that a row is rounded up to
  Value prefill_efficiency;         // fraction of tensor_flops in prefill attention
  Value gemm_memory_efficiency;     // fraction of hbm_bandwidth at few rows
  Curve gemm_compute_efficiency;    // fraction of tensor_flops over rows m
  Curve gather_efficiency;          // fraction of stream rate over contiguous bytes of a piece
  Curve topk_seconds;               // over columns, one row a thread block, k ≤ 2048
};

struct Link {
  Value h2d_bandwidth, d2h_bandwidth;  // B/s, pinned, large copies
  Value both_bandwidth;                // B/s in total with both directions busy
  Value pageable_bandwidth;
  Value copy_latency;                  // seconds from the start of a copy to its first byte
  Curve issue_seconds;                 // host time of one asynchronous copy call over its bytes
  Value issue_row_seconds;             // more, for each row of a 2D copy
  Value issue_batched_seconds;         // a piece of a batched call
  Curve engine_seconds;                // time of the copy engine for a piece over its bytes, when below the link rate
  Curve zero_copy_efficiency;          // fraction of h2d_bandwidth over the bytes of a piece
};

struct Host {
  std::string name;
  Value cores;
  Value dram_capacity, pinned_fraction;  // bytes; share that may be pinned
  Value dram_bandwidth;                  // B/s that cores and DMA together reach
  Value core_bandwidth, core_flops;      // one core, gather of 256-byte rows and dot products
  Value all_core_derate;                 // clock with all cores busy / clock of one
  Value dispatch;                        // fork and join of all workers, seconds
  Value launch, graph_launch, graph_node, eager_op, eager_layer, stream_sync, item_sync, python_page, python_head, task;
};

struct Hardware {
  std::string name;
  std::vector<std::string> aliases;  // "device/framework" names under which others publish measurements
  Gpu gpu;
  Link link;
  Host host;
};

// UserError for missing or unknown keys, values out of range, and rates above what the device can do (physics guard):
// efficiencies above 1, curves that rise above the peak.
Hardware read_hardware(const std::string& path);

}  // namespace kvcast::config
