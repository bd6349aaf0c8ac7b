// What PyTorch runs as several operators where serving systems have one fused kernel.
#pragma once

#include <string_view>
#include <vector>

#include "lower/block.hpp"

namespace kvcast::lower {

// Passes over memory that a fused kernel does in one: each an elementwise kernel of its own launch.
struct Pass {
  const char* label = "";
  double read_bytes = 0, write_bytes = 0;
};

// LlamaRMSNorm over `values` half-precision numbers, behind a residual addition where there is one; the last op.
graph::OpId unfused_norm(Block& block, double values, graph::OpId after, bool residual = true);
// apply_rotary_pos_emb on queries and keys of so many numbers, and their and the values' way into the cache.
graph::OpId unfused_rope(Block& block, double queries, double keys, graph::OpId after);
// SiLU and the product with the other half, over `values` numbers each.
graph::OpId unfused_activation(Block& block, double values, graph::OpId after);

// What generate() and the model run before the layers, on `rows` tokens of `hidden` numbers; the last op, a wait of the
// host's.
graph::OpId unfused_inputs(Block& block, double rows, double hidden, graph::OpId after);
// And behind the head, which wrote `logits` numbers for `rows` sequences, up to the one that the host reads; the last
// op.
graph::OpId unfused_choice(Block& block, double rows, double logits, graph::OpId after);

// Softmax over scores and the maximum over a group's query heads, as a policy's one kernel of this label has it: reads
// the scores, writes their maxima; blocks: rows of the softmax.
inline constexpr std::string_view kGroupSoftmax = "softmax, max over group";
graph::OpId unfused_group_softmax(Block& block, graph::Kind kind, const graph::Kernel& fused, graph::OpId after);

// Operators beyond the first of which a policy's kernel of this label consists as PyTorch writes it; 0 for what is
// written by hand, and for labels that are not known.
int further_operators(std::string_view label);

// The operators of which a policy's work on the CPU of this label consists, each with the threads that its numbers
// wake; the first carries the work of all. `work` alone for labels that are not known.
std::vector<graph::CpuWork> cpu_operators(std::string_view label, const graph::CpuWork& work);

}  // namespace kvcast::lower
