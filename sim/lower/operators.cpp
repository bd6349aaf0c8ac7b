// Operators as in huggingface/transformers, models/llama/modeling_llama.py. LlamaRMSNorm: to single precision, square,
// mean, + eps, rsqrt, product, to half precision, product with the weight. apply_rotary_pos_emb: q cos, rotate_half
// (negation, concatenation), product with sin, sum; the same for k.
#include "lower/operators.hpp"

#include <array>
#include <initializer_list>

namespace kvcast::lower {
namespace {

using graph::Kind;
using graph::Lane;
using graph::OpId;

constexpr double kHalf = 2, kSingle = 4;

OpId run(Block& block, std::initializer_list<Pass> passes, OpId after) {
  for (const Pass& pass : passes) {
    const graph::Kernel work{graph::KernelClass::kElementwise, pass.read_bytes, pass.write_bytes};
    after = block.kernel(Lane::kCompute, Kind::kSmall, pass.label, work, {after});
  }
  return after;
}

OpId rotate(Block& block, double values, OpId after) {
  const double bytes = values * kHalf;
  return run(block,
             {{"x cos", bytes, bytes},
              {"negate half", bytes / 2, bytes / 2},
              {"join halves", bytes, bytes},
              {"rotated x sin", bytes, bytes},
              {"sum of both", 2 * bytes, bytes}},
             after);
}

struct Written {
  std::string_view label;
  int further;
};

// A policy's work that papers write as chains of operators; top-k, gathers and hand-written kernels are one.
constexpr std::array kWritten = {
    Written{"estimate", 2},           // norm or scale of the queries, product, softmax over what is scored
    Written{"reduce over group", 0},  // one maximum or mean
    Written{"centroid lists", 2},     // positions past the sink, as integers of 4 bytes
    Written{"merge", 9},              // weights of two log-sum-exps: maximum, 2 differences, 2 exponentials, sum;
                                      // 2 products, sum, quotient
    // CTkvr's work on the CPU; its paper names kernels of its own for the GPU alone.
    Written{"rerank", 3},                  // gathered keys; product, softmax, maximum over the group
    Written{"top-k on the CPU", 1},        // top-k, positions of the best
    Written{"attention to the found", 5},  // gathered keys, gathered values, product, softmax; product, log-sum-exp
};

}  // namespace

OpId unfused_norm(Block& block, double values, OpId after) {
  const double half = values * kHalf, single = values * kSingle;
  return run(block,
             {{"add residual", 2 * half, half},
              {"norm to single", half, single},
              {"norm square", single, single},
              {"norm mean", single, 0},
              {"norm epsilon", 0, 0},
              {"norm rsqrt", 0, 0},
              {"norm product", single, single},
              {"norm to half", single, half},
              {"norm weight", half, half}},
             after);
}

OpId unfused_rope(Block& block, double queries, double keys, OpId after) {
  after = rotate(block, keys, rotate(block, queries, after));
  return run(block, {{"append keys", keys * kHalf, keys * kHalf}, {"append values", keys * kHalf, keys * kHalf}},
             after);
}

OpId unfused_activation(Block& block, double values, OpId after) {
  const double bytes = values * kHalf;
  return run(block, {{"silu", bytes, bytes}, {"gate x up", 2 * bytes, bytes}}, after);
}

// Quotient by √d, softmax, maximum, and a copy of the candidates alone in one piece, as torch.topk asks for.
OpId unfused_group_softmax(Block& block, Kind kind, const graph::Kernel& fused, OpId after) {
  const double scores = fused.read_bytes, maxima = fused.write_bytes;
  for (const Pass& pass : {Pass{"scale scores", scores, scores}, Pass{"softmax of scores", scores, scores},
                           Pass{"maximum over group", scores, maxima}, Pass{"copy candidates", maxima, maxima}}) {
    const graph::Kernel work{graph::KernelClass::kElementwise, pass.read_bytes, pass.write_bytes};
    after = block.kernel(Lane::kCompute, kind, pass.label, work, {after});
  }
  return after;
}

int further_operators(std::string_view label) {
  for (const Written& w : kWritten) {
    if (w.label == label) return w.further;
  }
  return 0;
}

}  // namespace kvcast::lower
