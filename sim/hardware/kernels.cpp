// GPU kernels: floor + max(bytes / reached bandwidth, FLOP / reached rate), with the terms that a plain roofline lacks.
//
// - Decode attention rounds every row up to the KV tile of the kernel (64 to 256 tokens in FlashAttention-2 and -3 and
//   FlashInfer). Without that term short rows, as sparse attention has them, come out up to 28 times too fast against
//   kernel times in the operator tables of ai-dynamo/aiconfigurator; with it `a + bytes / (f · bandwidth)` holds within
//   4 to 8 % in the median. Rows are split over SMs (flash-decoding), so what is too little for all SMs is the total
//   number of tiles, not of rows: fewer tiles than SMs take as long as one tile a SM.
// - A GEMM reads its weights at a fraction of the bandwidth that depends on their size, and computes at a fraction of
// the
//   peak that depends on the output tiles per SM: wave quantisation. Against the same tables one curve over tiles per
//   SM serves all row counts, where a curve over rows does not.
// - Gathers run slower the shorter their contiguous pieces. Top-k takes a time by columns on one SM a row.

#include <algorithm>
#include <cmath>

#include "graph/traffic.hpp"
#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

// Rows of the smallest matrix product instruction (mma.m16n8k16, PTX ISA): fewer rows take as long.
constexpr double kMmaRows = 16;

double round_up(double x, double step) { return std::ceil(x / step) * step; }

Number stream_rate(const config::Gpu& gpu) { return reached(gpu.hbm_bandwidth, number(gpu.stream_efficiency)); }

double hbm_bytes(const graph::Work& work) {
  const graph::Traffic traffic = graph::traffic_of(work);
  return traffic.hbm_read + traffic.hbm_write;
}

void add_floor(Terms& terms, const config::Gpu& gpu, const char* what, const Value& floor) {
  terms.wait(what, at_clock(gpu, number(floor)));
}

}  // namespace

void add_gemm(Terms& terms, const config::Gpu& gpu, const graph::Gemm& work) {
  add_floor(terms, gpu, "GEMM floor", gpu.floor_gemm);
  const double weights = work.n * work.k * work.element_bytes;
  terms.work("weights and activations", Resource::kHbm,
             exact(hbm_bytes(work)) / reached(gpu.hbm_bandwidth, at(gpu.gemm_memory_efficiency, weights)));
  // Tiles are counted in parts: whole ones would make 129 rows faster than 128, by the better fill of twice as many.
  const double tiles = std::max(1.0, work.m / gpu.gemm_tile) * std::max(1.0, work.n / gpu.gemm_tile);
  const double flops = 2 * round_up(work.m, kMmaRows) * work.n * work.k;
  terms.work("matrix products", Resource::kTensor,
             exact(flops) / reached(gpu.tensor_flops, at(gpu.gemm_compute_efficiency, tiles / gpu.sm_count)));
}

double rounded_tokens(const graph::DecodeAttention& work, double tile) {
  if (work.rows <= 0 || work.tokens <= 0) return 0;
  const double mean = work.tokens / work.rows;
  // Rows of one length round alike. Where lengths differ by a tile or more the remainder in the last tile is as good as
  // uniform: half a tile a row, and no row has less than one tile.
  if (work.longest - mean < tile) return work.rows * round_up(mean, tile);
  return std::max(work.rows * tile, work.tokens + work.rows * (tile - 1) / 2);
}

void add_decode_attention(Terms& terms, const config::Gpu& gpu, const graph::DecodeAttention& work) {
  add_floor(terms, gpu, "attention floor", gpu.floor_attention);
  const double tokens = rounded_tokens(work, gpu.attention_tile);
  if (tokens <= 0) return;
  if (work.longest > gpu.attention_tile) add_floor(terms, gpu, "merging of split rows", gpu.attention_merge);

  const double token_bytes = 2 * work.head_dim * work.element_bytes * work.kv_reads;
  Number rate = reached(gpu.hbm_bandwidth, number(gpu.attention_efficiency));
  if (work.unit_bytes > 0) rate = rate * at(gpu.gather_efficiency, work.unit_bytes);
  const Number read = exact(tokens * token_bytes) / rate;
  terms.work("keys and values", Resource::kHbm, read);
  const double tiles = tokens / gpu.attention_tile;
  if (tiles < gpu.sm_count) {
    // The idle SMs' bandwidth stays free for others, so that this is waiting and not work.
    terms.wait("fewer tiles than SMs", read * (gpu.sm_count / tiles - 1));
  }
  const graph::Traffic traffic = graph::traffic_of(work);
  const double others = traffic.hbm_read - traffic.kv_read + traffic.hbm_write;
  terms.work("queries, outputs, scores", Resource::kHbm, exact(others) / stream_rate(gpu));
  const double flops = 4 * tokens * round_up(work.group, kMmaRows) * work.head_dim;
  terms.work("attention products", Resource::kTensor,
             exact(flops) / reached(gpu.tensor_flops, number(gpu.prefill_efficiency)));
}

void add_prefill_attention(Terms& terms, const config::Gpu& gpu, const graph::PrefillAttention& work) {
  add_floor(terms, gpu, "attention floor", gpu.floor_attention);
  terms.work("attention products", Resource::kTensor,
             exact(work.flops) / reached(gpu.tensor_flops, number(gpu.prefill_efficiency)));
  terms.work("queries, keys, values, outputs", Resource::kHbm, exact(hbm_bytes(work)) / stream_rate(gpu));
}

void add_kernel(Terms& terms, const config::Gpu& gpu, const graph::Kernel& work) {
  const bool scores = work.cls == graph::KernelClass::kScore;
  add_floor(terms, gpu, scores ? "score floor" : "kernel floor", scores ? gpu.floor_score : gpu.floor_small);
  Number rate = stream_rate(gpu);
  if (work.cls == graph::KernelClass::kConvert) rate = rate * number(gpu.convert_efficiency);
  // The gathered side is the read one; outputs are written densely.
  const Number read_rate = work.unit_bytes > 0 ? rate * at(gpu.gather_efficiency, work.unit_bytes) : rate;
  terms.work("reads", Resource::kHbm, exact(work.read_bytes) / read_rate);
  terms.work("writes", Resource::kHbm, exact(work.write_bytes) / rate);
  terms.work("arithmetic", Resource::kVector,
             exact(work.flops) / reached(gpu.vector_flops, number(gpu.vector_efficiency)));
}

void add_topk(Terms& terms, const config::Gpu& gpu, const graph::TopK& work) {
  add_floor(terms, gpu, "top-k floor", gpu.floor_topk);
  if (work.rows <= 0 || work.columns <= 0) return;
  // A row is selected by one thread block; rows beyond the SMs queue. Two blocks may share an SM, so that the time
  // grows smoothly and not by whole waves.
  const double waves = std::max(1.0, work.rows / gpu.sm_count);
  terms.wait("scan of the scores", at_clock(gpu, at(gpu.topk_row, work.columns)) * waves);
  terms.wait("picking", at_clock(gpu, number(gpu.topk_pick)) * (work.k * waves));
  terms.work("scores read, picks written", Resource::kHbm, exact(hbm_bytes(work)) / stream_rate(gpu));
}

}  // namespace kvcast::hardware
