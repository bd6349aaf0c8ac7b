// Operators of huggingface/transformers, models/llama/modeling_llama.py. LlamaRMSNorm: to single precision, square,
// mean, + eps, rsqrt, product, to half precision, product with the weight. apply_rotary_pos_emb: q cos, rotate_half
// (negation, concatenation), product with sin, sum; the same for k.
#include "lower/operators.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

namespace kvcast::lower {
namespace {

using graph::Kind;
using graph::Lane;
using graph::OpId;

OpId run(LoweredBlock& block, std::initializer_list<MemoryPass> passes, OpId after) {
  for (const MemoryPass& pass : passes) {
    const graph::Kernel work{graph::KernelClass::kElementwise, pass.read_bytes, pass.write_bytes};
    after = block.compute(Kind::kSmall, pass.label, work, {after});
  }
  return after;
}

OpId rotate(LoweredBlock& block, double values, OpId after) {
  const double bytes = values * kHalfBytes;
  return run(block,
             {{"x cos", bytes, bytes},
              {"negate half", bytes / 2, bytes / 2},
              {"join halves", bytes, bytes},
              {"rotated x sin", bytes, bytes},
              {"sum of both", 2 * bytes, bytes}},
             after);
}

// Operators on a few numbers around the layers, with their count for each label. Source: huggingface/transformers,
// generation/utils.py (_sample, _update_model_kwargs_for_generation), modeling_llama.py and
// modeling_attn_mask_utils.py, greedy decoding.
struct Around {
  const char* label;
  int operators;
};
constexpr std::array kBefore = {
    Around{"next inputs", 4},     // mask: appends a one; cache position; the token alone
    Around{"positions", 5},       // mask to integers, their sums, minus one; padding: comparison, fill
    Around{"rotary angles", 10},  // two to single, product, join of halves; cosine, sine, scaling, to half
    Around{"mask is full", 2},    // comparison, all; the host reads the result, because a full mask is left out
};
constexpr std::array kAfter = {
    Around{"next token", 5},         // last position; token or padding: 2 products, difference, sum
    Around{"append token", 1},       // appends it to the generated tokens
    Around{"stopping criteria", 8},  // length; end token: comparison, any; either, not, and; largest, comparison
};

template <std::size_t n>
OpId run_all(LoweredBlock& block, const std::array<Around, n>& parts, double rows, OpId after) {
  for (const Around& part : parts) {
    for (int i = 0; i < part.operators; ++i)
      after = run(block, {{part.label, rows * kSingleBytes, rows * kSingleBytes}}, after);
  }
  return after;
}

struct Written {
  std::string_view label;
  int further;
};

// Work of policies that papers write as chains of operators, with the number of operators after the first. Top-k,
// gathers and hand-written kernels are one operator.
constexpr std::array kWritten = {
    Written{"estimate", 2},             // norm or scale of the queries, product, softmax over the scores
    Written{"reduce over group", 0},    // one maximum or mean
    Written{"normalise centroids", 2},  // norm, its bound, quotient
    Written{"centroid lists", 2},       // positions past the sink, as integers of 4 bytes
    Written{"merge", 9},                // weights of two log-sum-exps: maximum, 2 differences, 2 exponentials, sum;
                                        // 2 products, sum, quotient
};

// Work of policies on the CPU: what its first operator reads per head (1: keys, 2: keys and values, 0: scores), and the
// numbers of further operators over rows and over scores.
struct WrittenOnCpu {
  std::string_view label;
  int reads, over_rows, over_scores;
};

// Operators of CTkvr, whose paper states hand-written kernels for the GPU only.
constexpr std::array kWrittenOnCpu = {
    WrittenOnCpu{"rerank", 1, 1, 2},                        // gathered keys, product; softmax, maximum over the group
    WrittenOnCpu{"top-k on the CPU", 0, 0, 1},              // top-k; positions of the best
    WrittenOnCpu{"attention to recalled tokens", 2, 3, 2},  // gathered pairs, 2 products; softmax, log-sum-exp
};

// Softmax in pytorch/pytorch, aten/src/ATen/native/cuda/SoftMax.cu: one block per row holds the row in shared memory if
// it fits in the default allotment of a block, and otherwise reads it three times: for the maximum, the sum and the
// quotient. Scores that fit in the smallest L2 of recent data-centre GPUs (A6000, V100) are read from there; larger
// ones are charged to memory, though a larger L2 may hold some of them.
constexpr double kSharedMemory = 48 * 1024, kSmallestL2 = 6e6;

// GRAIN_SIZE in pytorch/pytorch, aten/src/ATen/TensorIterator.h: one thread for this many numbers.
constexpr double kGrain = 32768;
double threads_for(double numbers) { return std::max(1.0, std::ceil(numbers / kGrain)); }

}  // namespace

OpId unfused_norm(LoweredBlock& block, double values, OpId after, bool residual) {
  const double half = values * kHalfBytes, single = values * kSingleBytes;
  if (residual) after = run(block, {{"add residual", 2 * half, half}}, after);
  return run(block,
             {{"norm to single", half, single},
              {"norm square", single, single},
              {"norm mean", single, 0},
              {"norm epsilon", 0, 0},
              {"norm rsqrt", 0, 0},
              {"norm product", single, single},
              {"norm to half", single, half},
              {"norm weight", half, half}},
             after);
}

OpId unfused_rope(LoweredBlock& block, double queries, double keys, OpId after) {
  after = rotate(block, keys, rotate(block, queries, after));
  return run(
      block,
      {{"append keys", keys * kHalfBytes, keys * kHalfBytes}, {"append values", keys * kHalfBytes, keys * kHalfBytes}},
      after);
}

OpId unfused_activation(LoweredBlock& block, double values, OpId after) {
  const double bytes = values * kHalfBytes;
  return run(block, {{"silu", bytes, bytes}, {"gate x up", 2 * bytes, bytes}}, after);
}

OpId unfused_inputs(LoweredBlock& block, double rows, double hidden, OpId after) {
  after = run(block, {{"embedding", rows * hidden * kHalfBytes, rows * hidden * kHalfBytes}}, after);
  after = run_all(block, kBefore, rows, after);
  return block.host(Lane::kHost, Kind::kSync, "mask is full", graph::HostCall::kItemSync, 1, {after});
}

OpId unfused_choice(LoweredBlock& block, double rows, double logits, OpId after) {
  after = run(block, {{"logits to single", logits * kHalfBytes, logits * kSingleBytes}}, after);
  return run_all(block, kAfter, rows, after);
}

// Quotient by √d, softmax, maximum, and a contiguous copy of the candidates alone, which torch.topk requires.
OpId unfused_group_softmax(LoweredBlock& block, Kind kind, const graph::Kernel& fused, OpId after) {
  const double scores = fused.read_bytes, maxima = fused.write_bytes;
  const bool again = fused.blocks > 0 && scores / fused.blocks > kSharedMemory && scores > kSmallestL2;
  for (const MemoryPass& pass :
       {MemoryPass{"scale scores", scores, scores}, MemoryPass{"softmax of scores", (again ? 3 : 1) * scores, scores},
        MemoryPass{"maximum over group", scores, maxima}, MemoryPass{"copy candidates", maxima, maxima}}) {
    const graph::Kernel work{graph::KernelClass::kElementwise, pass.read_bytes, pass.write_bytes};
    after = block.compute(kind, pass.label, work, {after});
  }
  return after;
}

int further_operators(std::string_view label) {
  for (const Written& w : kWritten) {
    if (w.label == label) return w.further;
  }
  return 0;
}

std::vector<graph::CpuWork> cpu_operators(std::string_view label, const graph::CpuWork& work) {
  std::vector<graph::CpuWork> operators = {work};
  for (const WrittenOnCpu& w : kWrittenOnCpu) {
    if (w.label != label) continue;
    const double width = work.unit_bytes / kHalfBytes;  // numbers of a key
    const double rows = w.reads > 0 ? threads_for(work.items * work.bytes_per_item / kHalfBytes / w.reads) : 0;
    const double scores =
        threads_for(work.items * (w.reads > 0 ? work.flops_per_item / (2 * w.reads * width) : work.ranked_per_item));
    operators.front().threads = w.reads > 0 ? rows : scores;
    for (int i = 0; i < w.over_rows; ++i) operators.push_back({.threads = rows});
    for (int i = 0; i < w.over_scores; ++i) operators.push_back({.threads = scores});
  }
  return operators;
}

}  // namespace kvcast::lower
