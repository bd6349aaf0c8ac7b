// GPU kernels: floor + max(bytes / reached bandwidth, FLOP / reached rate), with the terms that a plain roofline lacks.
// All were found on the operator tables of ai-dynamo/aiconfigurator and chosen by cross-validation on them.
//
// - Decode attention (flash-decoding) splits rows into parts until the SMs have enough of them. A part occupies an SM
//   for a time per row, however short it is: this term dominates sparse attention over many rows, which bytes alone
//   make up to 28 times too fast. Parts are distributed over the SMs in rounds, the last of which takes as long as any;
//   the tiles of a part follow each other. All this overlaps with the transfer only in part: (t1^p + t2^p)^(1/p). The
//   smoothed ratio of measured times to these terms is a factor on them (correction.cpp).
// - Data that was read just before and fits in the L2 is read from there; benchmarks that do not flush it depend on
//   this.
// - A GEMM reads its weights at a fraction of the bandwidth, lower with more rows, and computes at a fraction of the
//   peak that depends on the output tiles per SM: wave quantisation. One curve over tiles per SM serves all row counts;
//   a curve over rows does not.
// - Gathers are slower the shorter their contiguous pieces. Top-k takes a time that depends on the columns, on one SM
//   per row.

#include <algorithm>
#include <cmath>

#include "graph/traffic.hpp"
#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

// Rows of the smallest matrix product instruction (mma.m16n8k16, PTX ISA): fewer rows take as long.
constexpr double kMmaRows = 16;

// Streaming rates were measured on copies and triads. How far reductions, softmax and scores stay below them depends on
// their implementation. Additional half-width of such a rate; a judgement, for want of a public table.
constexpr double kReductionSpread = 0.15;

double round_up(double x, double step) { return std::ceil(x / step) * step; }

Number stream_rate(const config::Gpu& gpu) { return reached(gpu.hbm_bandwidth, number(gpu.stream_efficiency)); }

// Share of the streaming rate that is left: turning from reads to writes and back takes the memory time.
double left_of_mixed(const config::Gpu& gpu, double read, double written) {
  const double balance = read + written > 0 ? 2 * std::min(read, written) / (read + written) : 0;
  return 1 - (1 - gpu.mixed_efficiency) * balance;
}

double hbm_bytes(const graph::Work& work) {
  const graph::ByteCounts traffic = graph::traffic_of(work);
  return traffic.hbm_read + traffic.hbm_write;
}

void add_floor(Terms& terms, const config::Gpu& gpu, const char* what, const Value& floor) {
  terms.wait(what, at_clock(gpu, number(floor)));
}

// Latency during which the memory is not yet, or no longer, busy; at most as long as the transfer itself.
void add_ramp(Terms& terms, const config::Gpu& gpu, double transfer) {
  if (gpu.memory_ramp <= 0 || transfer <= 0) return;
  terms.wait("memory ramp", number(gpu.memory_ramp) * (transfer / (transfer + gpu.memory_ramp)));
}

// Beyond the shapes for which a number was established it is as uncertain as beyond the end of a curve.
Number within(const config::SizeRange& span, double x, const Number& number) {
  return span.holds(x) ? number : outside(number, x, x < span.low ? span.low : span.high);
}

// Time that two works on different units take together beyond the longer of the two; p as in config::Gpu.
double beyond_longer(double a, double b, double p) {
  const double longer = std::max(a, b), shorter = std::min(a, b);
  return longer <= 0 ? 0 : longer * (std::pow(1 + std::pow(shorter / longer, p), 1 / p) - 1);
}

// A thread has few accesses in flight, so that a block moves its bytes at a rate that grows with its threads. Blocks
// beyond those that the SMs hold wait for their turn; as in decode attention, only part of this overlaps with the
// transfer. Meanwhile the memory is free for others, so the time beyond the transfer is waiting.
void add_blocks(Terms& terms, const config::Gpu& gpu, const graph::Kernel& work, double transfer) {
  // block_bandwidth is that of a block of 512 threads; the limit of an SM: CUDA C++ Programming Guide, compute
  // capabilities 7.0, 8.0, 9.0 and 10.0.
  constexpr double kBlockThreads = 512, kSmThreads = 2048;
  if (work.blocks <= 0) return;
  const double threads = work.threads > 0 ? work.threads : kBlockThreads;
  const double per_sm = work.per_sm > 0 ? work.per_sm : kSmThreads / threads;
  const double at_once = std::min(work.blocks, gpu.sm_count * per_sm);
  const Number rate = number(gpu.block_bandwidth) * (at_once * threads / kBlockThreads);
  Number held = exact(work.passes * work.read_bytes + work.write_bytes) / rate;
  const double beyond = beyond_longer(held.value, transfer, gpu.attention.overlap);
  held.value = beyond + std::max(0.0, held.value - transfer);
  terms.wait("bytes that blocks move", held);
}

// A decomposition is a chain of small steps: it waits for itself and leaves the units to others.
void add_factorisation(Terms& terms, const config::Gpu& gpu, const graph::Kernel& work) {
  constexpr double kSingle = 4;  // bytes of an element
  if (work.flops <= 0) return;
  const Number rate = at(gpu.factorise_rate, work.unit_bytes / kSingle);
  terms.wait("steps of the decomposition", at_clock(gpu, exact(work.flops) / rate));
}

// Factor by which rounds of whole blocks over the SMs take longer than their work. A block has 128 queries of a head of
// 128 dimensions (FlashAttention-2), so chunks of a prompt have few blocks; if they leave a fifth of the SMs without
// one, rows are split to fill them.
double rounds_of_prompt(const graph::PrefillAttention& work, const config::Gpu& gpu) {
  constexpr double kBlockBytes = 128 * 128 * 2, kFilled = 0.8;
  const double rounds = work.write_bytes / kBlockBytes / gpu.sm_count;
  return rounds < kFilled ? 1 : std::ceil(rounds) / rounds;
}

// PyTorch's torch.cat and its copies of expanded tensors move one element per instruction, so that the SMs and not the
// memory are the bottleneck: the time beyond that of the memory is waited for.
void add_element_copy(Terms& terms, const config::Gpu& gpu, const Value& bytes_a_cycle, const graph::Kernel& work) {
  Number copying = exact(work.write_bytes) / (number(bytes_a_cycle) * (gpu.sm_count * gpu.clock));
  const double beyond = copying.value - (work.read_bytes + work.write_bytes) / stream_rate(gpu).value;
  if (beyond <= 0) return;
  copying.uncertainty *= copying.value / beyond;
  copying.value = beyond;
  terms.wait("elements copied by the SMs", copying);
}

// Share that grows with the logarithm of the rows: 0 for one row, 1 for 64 and more.
double share_of_rows(double m) { return std::clamp(std::log2(std::max(1.0, m)) / 6, 0.0, 1.0); }

// Conversion of a packed number and its product with the scale, as in Marlin's kernels (arXiv 2408.11743).
constexpr double kUnpackOps = 2;

const Value& products_rate(const config::Gpu& gpu, graph::Products products) {
  static const Value kSame{1, Origin::kExact, 0, "16-bit products"};
  switch (products) {
    case graph::Products::kFp8:
      return gpu.fp8_rate;
    case graph::Products::kInt8:
      return gpu.int8_rate;
    case graph::Products::kFp4:
      return gpu.fp4_rate;
    case graph::Products::kMxfp4:  // mxf8f6f4 of tensor cores with four-bit numbers has the rate of eight bits
      return gpu.fp4_rate > 1 ? gpu.fp8_rate : kSame;
    case graph::Products::kHalf:
      break;
  }
  return kSame;
}

double pair_bytes(const graph::DecodeAttention& work) { return 2 * work.tokens * work.head_dim * work.element_bytes; }

// Bytes per cycle that an SM reads from the L2 in kernels of decode attention for one query head at a time.
const Value& separate_heads_rate() {
  static const Value kRate{
      20, Origin::kLiterature, 0.3,
      "16 bytes on an A100 (vllm-project/vllm pull request 2744), 21 on an H800 (InternLM/lmdeploy "
      "issue 1608, vLLM 0.4.2), 23 on A100s (LMDeploy 0.1, 70B, its benchmark/a100_fp16.md)"};
  return kRate;
}

// The share of the KV pairs that a call finds in the L2 if the call before has read the same ones: it falls from all at
// 0.75 of the L2 size to none at 1.25, as under least-recently-used replacement.
double found_in_l2(const config::Gpu& gpu, const graph::DecodeAttention& work) {
  return std::clamp(2.5 - 2 * pair_bytes(work) / gpu.l2_capacity, 0.0, 1.0);
}

}  // namespace

void add_gemm(Terms& terms, const config::Gpu& gpu, const graph::Gemm& work) {
  add_floor(terms, gpu, "GEMM floor", gpu.floor_gemm);
  const double weights = work.stored_bytes();
  const Number memory = at(gpu.gemm_memory_efficiency, weights) * (1 - gpu.gemm_row_loss * share_of_rows(work.m));
  const Number transfer = exact(hbm_bytes(work)) / reached(gpu.hbm_bandwidth, memory);
  terms.work("weights and activations", Resource::kHbm, transfer);
  // Kernels that unpack weights (Marlin) use mma.sync, as do those of experts (Triton) where few rows make it faster.
  const Value& faster = products_rate(gpu, work.products);
  const bool unpacks = work.weight_bytes > 0 && work.weight_bytes < work.element_bytes && faster <= 1;
  const Number of_native = number(gpu.flash2_efficiency) / number(gpu.prefill_efficiency);  // rate of mma.sync
  const double native_rows = round_up(work.m, gpu.gemm_rows), mma_rows = round_up(work.m, kMmaRows);
  const bool small =
      gpu.gemm_rows > kMmaRows && (unpacks || (work.groups > 1 && mma_rows < native_rows * of_native.value));
  const double rows = small ? mma_rows : native_rows;
  // Tiles are counted in fractions: whole ones would make 129 rows faster than 128, because twice as many tiles fill
  // the SMs better.
  const double row_tiles = std::max(1.0, rows / gpu.gemm_tile);
  const double tiles = work.groups * row_tiles * std::max(1.0, work.n / gpu.gemm_tile);
  const double flops = 2 * work.groups * rows * work.n * work.k;
  const Number rate = at(gpu.gemm_compute_efficiency, tiles / gpu.sm_count) * number(faster);
  const Number products = exact(flops) / reached(gpu.tensor_flops, small ? rate * of_native : rate);
  if (unpacks) {
    // 16-bit products of smaller weights: each weight is converted and scaled once for every row of output tiles.
    const double numbers = work.groups * work.n * work.k * std::ceil(row_tiles);
    terms.work("weights unpacked", Resource::kVector,
               exact(kUnpackOps * numbers) / reached(gpu.vector_flops, number(gpu.vector_efficiency)));
  }
  terms.work("matrix products", Resource::kTensor, products);
  Number apart = number(gpu.gemm_overlap);
  apart.value = beyond_longer(transfer.value, products.value, gpu.gemm_overlap);
  terms.wait("memory and products not overlapped", apart);
}

double attention_bytes(const graph::DecodeAttention& work, const config::Gpu& gpu) {
  if (work.rows <= 0) return 0;
  const double mean = work.tokens / work.rows;
  const config::AttentionKernel& kernel = gpu.attention_of(work.group);
  const double padding = round_up(mean, kernel.tile) - mean;
  return work.rows * (mean + kernel.padding * padding) * 2 * work.head_dim * work.element_bytes * work.kv_reads;
}

AttentionParts attention_parts(const graph::DecodeAttention& work, const config::Gpu& gpu) {
  const config::AttentionKernel& kernel = gpu.attention_of(work.group);
  const double pieces = std::ceil(work.tokens / work.rows / kernel.part);
  const double wanted = kernel.parts * gpu.sm_count;
  AttentionParts parts;
  parts.count = std::max(work.rows, std::min(work.rows * pieces, wanted));
  parts.split = parts.count > work.rows;
  parts.rounds = std::max(1.0, std::ceil(parts.count / gpu.sm_count));
  // The longest row is cut into as many parts as the mean one; the kernel waits for its part.
  const double longest = std::max(work.longest, work.tokens / work.rows);
  const double pieces_of_part = std::ceil(std::ceil(longest / kernel.part) / (parts.count / work.rows));
  parts.tiles = std::ceil(std::min(longest, pieces_of_part * kernel.part) / kernel.tile);
  return parts;
}

namespace {

// Adds the modelled terms, before the correction by measurements.
void add_attention_terms(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                         const graph::DecodeAttention& work) {
  const config::AttentionKernel& kernel = gpu.attention_of(work.group);
  add_floor(terms, gpu, "attention floor", kernel.floor);
  if (work.rows <= 0 || work.tokens <= 0) return;
  const AttentionParts parts = attention_parts(work, gpu);
  if (parts.split) add_floor(terms, gpu, "merging of split rows", kernel.merge);

  const double bytes = attention_bytes(work, gpu);
  const config::KernelRange& range = gpu.range;
  Number efficiency = within(range.attention_head_dim, work.head_dim, number(kernel.efficiency));
  efficiency = within(range.attention_tokens, work.tokens / work.rows, efficiency);
  Number rate = reached(gpu.hbm_bandwidth, efficiency);
  // The kernel's own efficiency is that of long pieces: shorter ones count by their ratio to these.
  const config::Curve& gathers = gpu.gather_efficiency;
  if (work.unit_bytes > 0) rate = rate * at(gathers, work.unit_bytes) * (1 / gathers.y.back());
  Number read = exact(bytes) / rate;
  if (work.warm) {
    const double found = found_in_l2(gpu, work);
    const Number fast = exact(bytes) / number(kernel.l2_bandwidth);
    read.value = found * fast.value + (1 - found) * read.value;
  }
  if (work.separate_heads) {
    const Number again = exact(bytes * work.group) / (number(separate_heads_rate()) * (gpu.sm_count * gpu.clock));
    if (again.value > read.value) read = again;
  }
  if (work.unequal) read = read * number(gpu.unequal_contexts);
  if (work.beside_prompts && work.group > 1) {
    read = read * rereads(gpu, framework, work.group);
  }
  terms.work("keys and values", Resource::kHbm, read);
  const graph::ByteCounts traffic = graph::traffic_of(work);
  const double others = traffic.hbm_read - traffic.kv_read + traffic.hbm_write;
  terms.work("queries, outputs, scores", Resource::kHbm, exact(others) / stream_rate(gpu));
  const double dims = work.product_dims > 0 ? work.product_dims : 2 * work.head_dim;
  const double flops = 2 * work.tokens * round_up(work.group, kMmaRows) * dims;
  terms.work("attention products", Resource::kTensor,
             exact(flops) / reached(gpu.tensor_flops, number(gpu.prefill_efficiency)));

  if (work.serial_tiles > 0) return;  // below
  // While parts wait for their turn the bandwidth is free for others, so this is waiting and not work.
  Number row = within(range.attention_rows, work.rows, at_clock(gpu, at(kernel.row, work.group)));
  const Number tile = at_clock(gpu, number(kernel.tile_time));
  const double chain = row.value * parts.rounds + tile.value * parts.tiles;
  row.value = beyond_longer(chain, read.value, kernel.overlap);
  if (chain > read.value) row.value += chain - read.value;
  terms.wait("parts of rows hold the SMs", row);
}

// A warp waits for the number of its tile's page and then for the pairs, and issues an instruction a clock at most.
// Warps share the SMs' rates, so that this shows where there are few.
void add_serial_tiles(Terms& terms, const config::Gpu& gpu, const graph::DecodeAttention& work) {
  static const Value kRoundTrip{571, Origin::kLiterature, 0.3, "te42kyfo/gpu-benches: 571 cycles to DRAM on an A100"};
  constexpr double kRoundTrips = 2;
  Number chain = exact(work.serial_tiles / gpu.clock) * number(kRoundTrip) * exact(kRoundTrips);
  chain.value += work.serial_tiles * work.tile_instructions / gpu.clock;
  chain.value = std::max(0.0, chain.value - terms.times().work);
  terms.wait("tiles one after another", chain);
}

}  // namespace

void add_decode_attention(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                          const graph::DecodeAttention& work) {
  // Unpacking is not part of the measured time of attention in half precision.
  terms.work("unpacking", Resource::kVector,
             exact(work.unpack_flops) / reached(gpu.vector_flops, number(gpu.vector_efficiency)));
  if (work.converted > 0 && !(work.fp8 && gpu.fp8_rate > 1)) {
    const Number rate = number(gpu.convert_rate) * exact(gpu.sm_count) * exact(gpu.clock);
    terms.work("numbers converted", Resource::kVector, exact(work.converted) / rate);
  }
  if (work.serial_tiles > 0) {  // measured factors are those of other kernels
    add_attention_terms(terms, gpu, framework, work);
    return add_serial_tiles(terms, gpu, work);
  }
  if (!gpu.attention_correction || work.rows <= 0 || work.tokens <= 0) {
    add_attention_terms(terms, gpu, framework, work);
    return add_whole_rows(terms, gpu, framework, work);
  }
  Terms modelled;
  add_attention_terms(modelled, gpu, framework, work);
  const double found = found_in_l2(gpu, work);
  double factor = attention_factor(*gpu.attention_correction, work);
  // If the benchmark found its pairs in the L2 and this work does not, the measured factor does not apply to it.
  if (gpu.attention_correction->repeated && !work.warm) factor = 1 + (1 - found) * (factor - 1);
  const double from_memory = (work.warm ? 1 - found : 1) * pair_bytes(work) / gpu.hbm_bandwidth;
  factor = std::max(factor, std::min(1.0, from_memory / modelled.alone()));  // no faster than the memory
  terms.add(modelled, factor);
  add_whole_rows(terms, gpu, framework, work);
}

void add_prefill_attention(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                           const graph::PrefillAttention& work) {
  add_floor(terms, gpu, "attention floor", gpu.attention.floor);
  const Value& efficiency = framework.attention_kernels == config::Framework::AttentionKernels::kFlash2 &&
                                    work.products == graph::Products::kHalf
                                ? gpu.flash2_efficiency
                                : gpu.prefill_efficiency;
  const Number products =
      exact(work.flops) / (reached(gpu.tensor_flops, number(efficiency)) * number(products_rate(gpu, work.products)));
  terms.work("attention products", Resource::kTensor, products);
  terms.wait("SMs idle in the last round", products * (rounds_of_prompt(work, gpu) - 1));
  terms.work("queries, keys, values, outputs", Resource::kHbm, exact(hbm_bytes(work)) / stream_rate(gpu));
}

namespace {

// Blocks of a recurrence take their chunks one after another, in rounds over the SMs. Kernels that keep what a chunk
// needs on the chip are limited by that alone; those that pass it through memory also by a part of its bandwidth.
void add_scan(Terms& terms, const config::Gpu& gpu, const config::Framework& framework, const graph::Kernel& work) {
  const Number rounds = exact(std::ceil(work.blocks / gpu.sm_count));
  terms.work("chunks one after another", Resource::kVector, rounds * exact(work.passes) * number(framework.scan_chunk));
  if (framework.scan_share <= 0) return;
  const Number rate = stream_rate(gpu) * number(framework.scan_share);
  terms.work("chunks through memory", Resource::kHbm, exact(work.read_bytes + work.write_bytes) / rate);
}

}  // namespace

void add_kernel(Terms& terms, const config::Gpu& gpu, const config::Framework& framework, const graph::Kernel& work) {
  // Floor and efficiency of scores were established on scores of pages and include the time that their blocks take.
  const bool scores = work.cls == graph::KernelClass::kScore && work.blocks <= 0;
  add_floor(terms, gpu, scores ? "score floor" : "kernel floor", scores ? gpu.floor_score : gpu.floor_small);
  if (work.cls == graph::KernelClass::kScan) return add_scan(terms, gpu, framework, work);
  Number rate = stream_rate(gpu) * left_of_mixed(gpu, work.read_bytes, work.write_bytes);
  if (work.cls == graph::KernelClass::kReduce) rate.uncertainty = std::hypot(rate.uncertainty, kReductionSpread);
  if (scores) rate = rate * number(gpu.score_efficiency);
  // torch.cat writes what it reads; a kernel that writes more copies an expanded tensor.
  const bool by_element = work.cls == graph::KernelClass::kConcatenate;
  const bool repeats = by_element && work.write_bytes > work.read_bytes;
  if (work.cls == graph::KernelClass::kConvert || (repeats && framework.repeat_bytes <= 0))
    rate = rate * number(gpu.convert_efficiency);
  const bool factorises = work.cls == graph::KernelClass::kFactorise;
  // Gathers apply to reads; outputs are written densely.
  const bool gathers = work.unit_bytes > 0 && !factorises;
  const Number read_rate = gathers ? rate * at(gpu.gather_efficiency, work.unit_bytes) : rate;
  const Number reads = exact(work.read_bytes) / read_rate, writes = exact(work.write_bytes) / rate;
  terms.work("reads", Resource::kHbm, reads);
  terms.work("writes", Resource::kHbm, writes);
  // Floors of scores and efficiencies of gathers were established on such kernels and include their ramp.
  if (!gathers && !scores) add_ramp(terms, gpu, reads.value + writes.value);
  if (factorises) return add_factorisation(terms, gpu, work);
  if (work.cls == graph::KernelClass::kSort) {
    return terms.wait("tokens sorted by experts", number(framework.expert_sort));
  }
  if (by_element) {
    const Value& bytes_a_cycle = repeats ? framework.repeat_bytes : framework.concatenate_bytes;
    return bytes_a_cycle > 0 ? add_element_copy(terms, gpu, bytes_a_cycle, work) : void();
  }
  // Fewer blocks than SMs leave the other SMs to other kernels: the additional time of the slower arithmetic is
  // waiting.
  const Number products = exact(work.flops) / reached(gpu.vector_flops, number(gpu.vector_efficiency));
  terms.work("arithmetic", Resource::kVector, products);
  const double idle = work.blocks > 0 ? std::max(0.0, gpu.sm_count / work.blocks - 1) : 0;
  terms.wait("arithmetic on few SMs", products * idle);
  add_blocks(terms, gpu, work, reads.value + writes.value);
}

void add_topk(Terms& terms, const config::Gpu& gpu, const graph::TopK& work) {
  add_floor(terms, gpu, "top-k floor", gpu.floor_topk);
  if (work.rows <= 0 || work.columns <= 0) return;
  // A row is selected by one thread block; rows in excess of the SMs queue. Two blocks may share an SM, so the time
  // grows smoothly and not by whole waves.
  const double waves = std::max(1.0, work.rows / gpu.sm_count);
  terms.wait("scan of the scores", at_clock(gpu, at(gpu.topk_row, work.columns)) * (waves * work.passes));
  terms.wait("picking", at_clock(gpu, number(gpu.topk_pick)) * (work.k * waves));
  terms.work("scores read, picks written", Resource::kHbm, exact(hbm_bytes(work)) / stream_rate(gpu));
}

}  // namespace kvcast::hardware
