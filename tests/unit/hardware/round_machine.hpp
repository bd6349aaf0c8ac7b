// A made-up machine of round numbers, for costs that can be worked out by hand.
#pragma once

#include "config/hardware.hpp"
#include "config/run.hpp"
#include "graph/op.hpp"

namespace kvcast::tests {

inline Value known(double value, double uncertainty = 0.1) {
  return {value, Origin::kLiterature, uncertainty, "made up"};
}

inline config::Curve curve(std::vector<double> x, std::vector<double> y) {
  return {std::move(x), std::move(y), Origin::kLiterature, 0.1, "made up"};
}

inline config::Gpu round_gpu() {
  config::Gpu g;
  g.hbm_capacity = known(40e9), g.hbm_reserved = known(1e9);
  g.hbm_bandwidth = known(1e12);
  g.tensor_flops = known(100e12), g.vector_flops = known(10e12);
  g.fp8_rate = known(2), g.int8_rate = known(2), g.fp4_rate = known(1);
  g.sm_count = known(100);
  g.clock = known(1e9), g.floor_clock = known(1e9);
  g.floor_gemm = known(2e-6), g.attention.floor = known(10e-6), g.floor_score = known(3e-6);
  g.floor_topk = known(4e-6), g.floor_small = known(1e-6), g.attention.merge = known(5e-6);
  g.gap_stream = known(2e-6), g.gap_graph = known(1e-6);
  g.stream_efficiency = known(0.8), g.convert_efficiency = known(0.5), g.vector_efficiency = known(0.5);
  g.block_bandwidth = known(1e9);
  g.convert_rate = known(5), g.mixed_efficiency = known(1);
  g.score_efficiency = known(1, 0.15);
  g.attention.efficiency = known(0.8), g.attention.tile = known(100), g.prefill_efficiency = known(0.5);
  g.flash2_efficiency = known(0.25);
  g.l2_capacity = known(20e6), g.attention.l2_bandwidth = known(4e12);
  g.attention.padding = known(0.5), g.attention.part = known(100), g.attention.parts = known(4);
  g.attention.tile_time = known(0.5e-6), g.attention.overlap = known(1);  // 1: times simply add up
  g.attention.row = curve({1, 4, 8}, {1e-6, 2e-6, 4e-6});
  g.gemm_overlap = known(100), g.gemm_row_loss = known(0);  // only the longer time counts
  g.gemm_tile = known(100), g.topk_pick = known(1e-9);
  g.gemm_memory_efficiency = curve({0, 100e6}, {0.5, 1.0});
  g.gemm_compute_efficiency = curve({0, 1, 10}, {0.1, 0.5, 0.95});
  g.gather_efficiency = curve({0, 1000}, {0.25, 0.75});
  g.factorise_rate = curve({100, 200}, {10e9, 30e9});
  g.topk_row = curve({0, 1000, 11000}, {1e-6, 2e-6, 12e-6});
  return g;
}

inline config::Link round_link() {
  config::Link l;
  l.theory_bandwidth = known(12e9), l.h2d_bandwidth = known(10e9), l.d2h_bandwidth = known(8e9);
  l.both_bandwidth = known(16e9), l.pageable_bandwidth = known(4e9);
  l.peer_bandwidth = known(50e9), l.peer_latency = known(4e-6);
  l.copy_latency = known(1e-6);
  l.issue_row = known(0.1e-6), l.load_latency = known(1e-6), l.engine_row = known(0.05e-6);
  l.engine_d2h_ratio = known(1), l.engine_batched = known(0.5e-6), l.engine_turn = known(0.7e-6);
  l.issue_batched = curve({1, 1e9}, {0.5e-6, 0.5e-6});
  l.issue_call = curve({1, 1e9}, {4e-6, 4e-6});
  l.engine_piece = curve({1, 1e9}, {1e-6, 1e-6});
  l.zero_copy_efficiency = curve({0, 1000}, {0.1, 0.6});
  return l;
}

inline config::Host round_host() {
  config::Host h;
  h.name = h.title = "round";
  h.cores = known(8);
  h.dram_capacity = known(100e9), h.pinned_fraction = known(0.9), h.dram_bandwidth = known(100e9);
  h.core_flops = known(10e9), h.core_products = known(50e9), h.all_core_derate = known(0.65), h.dispatch = known(20e-6);
  h.core_rank = known(2e-9), h.core_translation = known(50e-9), h.core_rank_again = known(3e-9),
  h.core_lookup = known(1e-9), h.core_bucket = known(100e-9);
  h.core_bandwidth = curve({0, 1000}, {2e9, 12e9});
  h.launch = known(5e-6), h.graph_launch = known(8e-6), h.graph_node = known(0.01e-6);
  h.eager_op = known(10e-6), h.eager_layer = known(100e-6);
  h.stream_sync = known(6e-6), h.item_sync = known(12e-6);
  h.python_page = known(70e-6), h.python_head = known(150e-6), h.task = known(3e-6);
  return h;
}

inline config::Hardware round_machine() {
  return {"round", "Round", {}, round_gpu(), round_link(), round_host(), {}, config::TimesOrigin::kFitted, {}};
}

inline config::Framework framework(config::Framework::Launch launch) {
  config::Framework f;
  f.launch = launch;
  return f;
}

inline graph::Op op_of(graph::Work work, graph::Lane lane = graph::Lane::kCompute) {
  graph::Op op;
  op.lane = lane;
  op.work = std::move(work);
  return op;
}

}  // namespace kvcast::tests
