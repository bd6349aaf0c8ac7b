// The numbers of a machine as tables: key, member, unit and range of each. Readers, knobs and the canonical text
// iterate over these tables, so each number is named once.
#pragma once

#include <span>

#include "config/hardware.hpp"

namespace kvcast::config {

inline constexpr double kHuge = 1e18;

template <typename Owner>
struct ValueField {
  const char* key;
  Value Owner::*member;
  Dimension dimension;
  double low, high;
  double fallback = -1;  // default for profiles that do not state it; negative: they must
};

template <typename Owner>
struct CurveField {
  const char* key;
  Curve Owner::*member;
  Dimension x, y;
  double low, high;  // of y
};

inline constexpr ValueField<Gpu> kGpuValues[] = {
    {"hbm_capacity", &Gpu::hbm_capacity, Dimension::kBytes, 1e6, kHuge},
    {"hbm_reserved", &Gpu::hbm_reserved, Dimension::kBytes, 0, kHuge},
    {"hbm_bandwidth", &Gpu::hbm_bandwidth, Dimension::kBytesPerSecond, 1e9, kHuge},
    {"tensor_flops", &Gpu::tensor_flops, Dimension::kFlopPerSecond, 1e9, kHuge},
    {"vector_flops", &Gpu::vector_flops, Dimension::kFlopPerSecond, 1e9, kHuge},
    {"fp8_rate", &Gpu::fp8_rate, Dimension::kNone, 0.01, 64, 1},
    {"int8_rate", &Gpu::int8_rate, Dimension::kNone, 0.01, 64, 1},
    {"fp4_rate", &Gpu::fp4_rate, Dimension::kNone, 0.01, 64, 1},
    {"sm_count", &Gpu::sm_count, Dimension::kNone, 1, 1e5},
    {"clock", &Gpu::clock, Dimension::kHertz, 1e6, 1e11},
    {"floor_clock", &Gpu::floor_clock, Dimension::kHertz, 1e6, 1e11},
    {"floor_gemm", &Gpu::floor_gemm, Dimension::kSeconds, 0, 1},
    {"floor_score", &Gpu::floor_score, Dimension::kSeconds, 0, 1},
    {"floor_topk", &Gpu::floor_topk, Dimension::kSeconds, 0, 1},
    {"floor_small", &Gpu::floor_small, Dimension::kSeconds, 0, 1},
    {"gap_stream", &Gpu::gap_stream, Dimension::kSeconds, 0, 1},
    {"gap_graph", &Gpu::gap_graph, Dimension::kSeconds, 0, 1},
    {"stream_efficiency", &Gpu::stream_efficiency, Dimension::kFraction, 1e-3, 1},
    {"mixed_efficiency", &Gpu::mixed_efficiency, Dimension::kFraction, 0.1, 1, 1},
    {"memory_ramp", &Gpu::memory_ramp, Dimension::kSeconds, 0, 1, 0},
    {"convert_efficiency", &Gpu::convert_efficiency, Dimension::kFraction, 1e-3, 1},
    {"score_efficiency", &Gpu::score_efficiency, Dimension::kFraction, 1e-3, 1, 1},
    {"vector_efficiency", &Gpu::vector_efficiency, Dimension::kFraction, 1e-3, 1},
    {"block_bandwidth", &Gpu::block_bandwidth, Dimension::kBytesPerSecond, 1e6, kHuge, 20e9},
    {"convert_rate", &Gpu::convert_rate, Dimension::kNone, 0.01, 1e4, 8},
    {"l2_capacity", &Gpu::l2_capacity, Dimension::kBytes, 1e5, kHuge},
    {"prefill_efficiency", &Gpu::prefill_efficiency, Dimension::kFraction, 1e-3, 1},
    {"flash2_efficiency", &Gpu::flash2_efficiency, Dimension::kFraction, 1e-3, 1},
    {"sustained_rate", &Gpu::sustained_rate, Dimension::kFraction, 0.1, 1, 1},
    {"unequal_contexts", &Gpu::unequal_contexts, Dimension::kNone, 1, 10, 1.04},
    {"mixed_pass_rereads", &Gpu::mixed_pass_rereads, Dimension::kFraction, 0, 1, 0},
    {"gemm_overlap", &Gpu::gemm_overlap, Dimension::kNone, 1, 100},
    {"gemm_row_loss", &Gpu::gemm_row_loss, Dimension::kFraction, 0, 0.9},
    {"gemm_rows", &Gpu::gemm_rows, Dimension::kNone, 1, 1e4, 16},
    {"gemm_tile", &Gpu::gemm_tile, Dimension::kNone, 1, 1e5},
    {"topk_pick", &Gpu::topk_pick, Dimension::kSeconds, 0, 1},
};
inline constexpr CurveField<Gpu> kGpuCurves[] = {
    {"gemm_memory_efficiency", &Gpu::gemm_memory_efficiency, Dimension::kBytes, Dimension::kFraction, 1e-3, 1},
    {"gemm_compute_efficiency", &Gpu::gemm_compute_efficiency, Dimension::kNone, Dimension::kFraction, 1e-3, 1},
    {"gather_efficiency", &Gpu::gather_efficiency, Dimension::kBytes, Dimension::kFraction, 1e-3, 1},
    {"topk_row", &Gpu::topk_row, Dimension::kNone, Dimension::kSeconds, 0, 10},
    {"factorise_rate", &Gpu::factorise_rate, Dimension::kNone, Dimension::kFlopPerSecond, 1e6, kHuge},
};
inline constexpr ValueField<AttentionKernel> kAttentionValues[] = {
    {"floor_attention", &AttentionKernel::floor, Dimension::kSeconds, 0, 1},
    {"attention_merge", &AttentionKernel::merge, Dimension::kSeconds, 0, 1},
    {"l2_bandwidth", &AttentionKernel::l2_bandwidth, Dimension::kBytesPerSecond, 1e9, kHuge},
    {"attention_efficiency", &AttentionKernel::efficiency, Dimension::kFraction, 1e-3, 1},
    {"attention_tile", &AttentionKernel::tile, Dimension::kNone, 1, 1e5},
    {"attention_padding", &AttentionKernel::padding, Dimension::kFraction, 0, 1},
    {"attention_part", &AttentionKernel::part, Dimension::kNone, 1, 1e6},
    {"attention_parts", &AttentionKernel::parts, Dimension::kNone, 0.01, 1e3},
    {"attention_tile_time", &AttentionKernel::tile_time, Dimension::kSeconds, 0, 1},
    {"attention_overlap", &AttentionKernel::overlap, Dimension::kNone, 1, 100},
};
inline constexpr CurveField<AttentionKernel> kAttentionCurves[] = {
    {"attention_row", &AttentionKernel::row, Dimension::kNone, Dimension::kSeconds, 0, 1},
};
inline constexpr ValueField<Link> kLinkValues[] = {
    {"theory_bandwidth", &Link::theory_bandwidth, Dimension::kBytesPerSecond, 1e6, kHuge},
    {"h2d_bandwidth", &Link::h2d_bandwidth, Dimension::kBytesPerSecond, 1e6, kHuge},
    {"d2h_bandwidth", &Link::d2h_bandwidth, Dimension::kBytesPerSecond, 1e6, kHuge},
    {"both_bandwidth", &Link::both_bandwidth, Dimension::kBytesPerSecond, 1e6, kHuge},
    {"both_h2d_share", &Link::both_h2d_share, Dimension::kFraction, 0, 1, 0},
    {"pageable_bandwidth", &Link::pageable_bandwidth, Dimension::kBytesPerSecond, 1e6, kHuge},
    {"peer_bandwidth", &Link::peer_bandwidth, Dimension::kBytesPerSecond, 0, kHuge, 0},
    {"peer_share", &Link::peer_share, Dimension::kFraction, 1e-3, 1, 0.67},
    {"peer_latency", &Link::peer_latency, Dimension::kSeconds, 0, 1, 3.3e-6},
    {"copy_latency", &Link::copy_latency, Dimension::kSeconds, 0, 1},
    {"issue_2d", &Link::issue_2d, Dimension::kSeconds, 0, 1, 0},
    {"issue_row", &Link::issue_row, Dimension::kSeconds, 0, 1},
    {"load_latency", &Link::load_latency, Dimension::kSeconds, 0, 1, 1.5e-6},
    {"engine_d2h_ratio", &Link::engine_d2h_ratio, Dimension::kNone, 0.1, 10, 1},
    {"engine_row", &Link::engine_row, Dimension::kSeconds, 0, 1},
    {"engine_batched", &Link::engine_batched, Dimension::kSeconds, 0, 1, 0.5e-6},
    {"engine_turn", &Link::engine_turn, Dimension::kSeconds, 0, 1, 0},
};
inline constexpr CurveField<Link> kLinkCurves[] = {
    {"issue_call", &Link::issue_call, Dimension::kBytes, Dimension::kSeconds, 0, 1},
    {"issue_batched", &Link::issue_batched, Dimension::kBytes, Dimension::kSeconds, 0, 1},
    {"engine_piece", &Link::engine_piece, Dimension::kBytes, Dimension::kSeconds, 0, 10},
    {"zero_copy_efficiency", &Link::zero_copy_efficiency, Dimension::kBytes, Dimension::kFraction, 1e-3, 1},
};
inline constexpr ValueField<Host> kHostValues[] = {
    {"cores", &Host::cores, Dimension::kNone, 1, 1e5},
    {"dram_capacity", &Host::dram_capacity, Dimension::kBytes, 1e6, kHuge},
    {"pinned_fraction", &Host::pinned_fraction, Dimension::kFraction, 0, 1},
    {"dram_bandwidth", &Host::dram_bandwidth, Dimension::kBytesPerSecond, 1e8, kHuge},
    {"core_flops", &Host::core_flops, Dimension::kFlopPerSecond, 1e6, kHuge},
    {"core_products", &Host::core_products, Dimension::kFlopPerSecond, 1e6, kHuge},
    {"core_translation", &Host::core_translation, Dimension::kSeconds, 0, 1},
    {"core_rank", &Host::core_rank, Dimension::kSeconds, 0, 1},
    {"core_rank_again", &Host::core_rank_again, Dimension::kSeconds, 0, 1},
    {"core_lookup", &Host::core_lookup, Dimension::kSeconds, 0, 1},
    {"core_bucket", &Host::core_bucket, Dimension::kSeconds, 0, 1},
    {"all_core_derate", &Host::all_core_derate, Dimension::kFraction, 1e-3, 1},
    {"dispatch", &Host::dispatch, Dimension::kSeconds, 0, 1},
    {"launch", &Host::launch, Dimension::kSeconds, 0, 1},
    {"graph_launch", &Host::graph_launch, Dimension::kSeconds, 0, 1},
    {"graph_node", &Host::graph_node, Dimension::kSeconds, 0, 1},
    {"eager_op", &Host::eager_op, Dimension::kSeconds, 0, 1},
    {"eager_layer", &Host::eager_layer, Dimension::kSeconds, 0, 1},
    {"stream_sync", &Host::stream_sync, Dimension::kSeconds, 0, 1},
    {"item_sync", &Host::item_sync, Dimension::kSeconds, 0, 1},
    {"python_page", &Host::python_page, Dimension::kSeconds, 0, 1},
    {"python_head", &Host::python_head, Dimension::kSeconds, 0, 1},
    {"task", &Host::task, Dimension::kSeconds, 0, 1},
};
inline constexpr CurveField<Host> kHostCurves[] = {
    {"core_bandwidth", &Host::core_bandwidth, Dimension::kBytes, Dimension::kBytesPerSecond, 1e6, kHuge},
};

// Calls visit(prefix, owner, values, curves) for each part of a machine, const or not, in a fixed order.
template <typename Machine, typename Visit>
void for_each_part(Machine& machine, const Visit& visit) {
  auto& gpu = machine.gpu;
  visit("gpu.", gpu, std::span(kGpuValues), std::span(kGpuCurves));
  visit("gpu.", gpu.attention, std::span(kAttentionValues), std::span(kAttentionCurves));
  if (gpu.attention_mha) {
    visit("gpu.attention_mha.", *gpu.attention_mha, std::span(kAttentionValues), std::span(kAttentionCurves));
  }
  visit("link.", machine.link, std::span(kLinkValues), std::span(kLinkCurves));
  visit("host.", machine.host, std::span(kHostValues), std::span(kHostCurves));
}

}  // namespace kvcast::config
