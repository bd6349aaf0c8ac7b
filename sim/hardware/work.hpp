// The formulas, one function per kind of work: each adds its parts to the terms of an op.
#pragma once

#include "config/framework.hpp"
#include "config/hardware.hpp"
#include "graph/op.hpp"
#include "hardware/terms.hpp"

namespace kvcast::hardware {

// Kernels (kernels.cpp); the caller adds the gap before the kernel.
void add_gemm(Terms& terms, const config::Gpu& gpu, const graph::Gemm& work);
void add_decode_attention(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                          const graph::DecodeAttention& work);
void add_prefill_attention(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                           const graph::PrefillAttention& work);
void add_kernel(Terms& terms, const config::Gpu& gpu, const config::Framework& framework, const graph::Kernel& work);
void add_topk(Terms& terms, const config::Gpu& gpu, const graph::TopK& work);

// Decode attention in a pass that also reads prompts (mixed_passes.cpp): reads of its KV pairs over those of a decode
// step, and what a row that is not split takes beyond the terms so far, however few rows there are. FlashAttention-2's
// kernel is the same on all GPUs; otherwise gpu.mixed_pass_rereads is also the share of kernels that do not split.
Number rereads(const config::Gpu& gpu, const config::Framework& framework, double group);
void add_whole_rows(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                    const graph::DecodeAttention& work);

// Distribution of decode attention over the SMs; rows and tokens > 0.
struct AttentionParts {
  double count = 0;    // of all rows
  bool split = false;  // more parts than rows
  double rounds = 0;   // of parts over the SMs, rounded up
  double tiles = 0;    // of the longest part, rounded up
};
AttentionParts attention_parts(const graph::DecodeAttention& work, const config::Gpu& gpu);

// KV bytes that are read, including part of the padding in the last tile of each row.
double attention_bytes(const graph::DecodeAttention& work, const config::Gpu& gpu);

// Ratio of measured to modelled time of a shape, > 0 (correction.cpp): linear between the nodes in the logarithms of
// the axes; beyond the lattice the value at its end, fading to 1 within an octave.
double attention_factor(const config::AttentionCorrection& correction, const graph::DecodeAttention& work);

// An exchange between GPUs (collectives.cpp): over their own link by the faster of two algorithms, or over the link to
// the host.
void add_collective(Terms& terms, const config::Hardware& machine, const graph::Collective& work);
// B/s that a GPU receives from others while all of them exchange.
Number peer_rate(const config::Link& link);
// Host-device copies (transfers.cpp); a zero-copy transfer is also a kernel.
void add_copy(Terms& terms, const config::Hardware& machine, const graph::Copy& work);

// Work of the host (host.cpp).
void add_host_calls(Terms& terms, const config::Host& host, const config::Framework& framework,
                    const graph::HostWork& work, Resource thread);
void add_cpu_work(Terms& terms, const config::Host& host, const graph::CpuWork& work);

// The fifo resource of a host thread's lane. Aborts if the lane is not a host thread.
Resource thread_of(graph::Lane lane);

// Floors were established at floor_clock; latency-bound time scales with the clock and not with bandwidth.
inline Number at_clock(const config::Gpu& gpu, const Number& seconds) {
  if (gpu.floor_clock.value == gpu.clock.value) return seconds;  // nothing to convert, and no clock error
  return seconds * number(gpu.floor_clock) / number(gpu.clock);
}

}  // namespace kvcast::hardware
