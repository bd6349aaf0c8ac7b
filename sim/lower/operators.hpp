// Work that PyTorch runs as several operators where serving systems have one fused kernel.
#pragma once

#include <string_view>
#include <vector>

#include "lower/block.hpp"

namespace kvcast::lower {

// A pass over memory that a fused kernel avoids: an elementwise kernel with its own launch.
struct MemoryPass {
  const char* label = "";
  double read_bytes = 0, write_bytes = 0;
};

// Adds LlamaRMSNorm over `values` half-precision numbers, after a residual addition if `residual`; returns the last op.
graph::OpId unfused_norm(LoweredBlock& block, double values, graph::OpId after, bool residual = true);
// Adds apply_rotary_pos_emb on queries and keys of this many numbers, and the append of keys and values to the cache.
graph::OpId unfused_rope(LoweredBlock& block, double queries, double keys, graph::OpId after);
// Adds SiLU and the product with the other half, over `values` numbers each.
graph::OpId unfused_activation(LoweredBlock& block, double values, graph::OpId after);

// Adds the operators of generate() and of the model before the layers, on `rows` tokens of `hidden` numbers. Returns
// the last op, a wait of the host.
graph::OpId unfused_inputs(LoweredBlock& block, double rows, double hidden, graph::OpId after);
// Adds the operators after the head, which wrote `logits` numbers for `rows` sequences, up to the one that the host
// reads. Returns the last op.
graph::OpId unfused_choice(LoweredBlock& block, double rows, double logits, graph::OpId after);

// Softmax over scores and the maximum over a group's query heads; a policy has one kernel of this label. `fused` reads
// the scores and writes their maxima; its blocks are the rows of the softmax.
inline constexpr std::string_view kGroupSoftmax = "softmax, max over group";
graph::OpId unfused_group_softmax(LoweredBlock& block, graph::Kind kind, const graph::Kernel& fused, graph::OpId after);

// Returns the number of operators after the first that PyTorch runs for a policy's kernel of this label; 0 for
// hand-written kernels and unknown labels.
int further_operators(std::string_view label);

// Returns the operators of a policy's work on the CPU of this label, each with the number of threads that it wakes; the
// first carries the work of all. Returns `work` alone for unknown labels.
std::vector<graph::CpuWork> cpu_operators(std::string_view label, const graph::CpuWork& work);

}  // namespace kvcast::lower
