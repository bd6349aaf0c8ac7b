// Bytes a score in half precision (huggingface/transformers, models/llama/modeling_llama.py, eager_attention_forward):
// written by QKᵀ 2, scaled 2 + 2, masked 2 + 2, softmax 2 + 4, converted 4 + 2, read by the product with V 2: 24 in
// all.
#include "lower/eager.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::Lane;
using graph::OpId;

namespace {

constexpr double kHalf = 2, kSingle = 4;

}  // namespace

OpId eager_attention(Block& block, const EagerAttention& work, OpId after) {
  const auto pass = [&](const char* label, double read, double write, double flops,
                        graph::KernelClass cls = graph::KernelClass::kElementwise) {
    after = block.kernel(Lane::kCompute, Kind::kAttention, label, graph::Kernel{cls, read, write, flops}, {after});
  };
  const auto product = [&](const char* label, double read, double write) {
    const graph::PrefillAttention both{2 * work.scores * work.head_dim, read, write};
    after = block.kernel(Lane::kCompute, Kind::kAttention, label, both, {after});
  };
  const double s = work.scores, repeated = work.kv_bytes * work.group;
  if (work.group > 1) {
    pass("repeat keys", work.kv_bytes / 2, repeated / 2, 0, graph::KernelClass::kConcatenate);
    pass("repeat values", work.kv_bytes / 2, repeated / 2, 0, graph::KernelClass::kConcatenate);
  }
  product("scores", work.q_bytes + repeated / 2, s * kHalf);
  pass("scale", s * kHalf, s * kHalf, s);
  pass("mask", s * kHalf, s * kHalf, s);
  pass("softmax", s * kHalf, s * kSingle, 4 * s);
  pass("convert weights", s * kSingle, s * kHalf, 0);
  product("weighted values", s * kHalf + repeated / 2, work.q_bytes);
  return after;
}

double eager_score_bytes(const EagerAttention& work) { return work.scores * (kHalf + kSingle + kHalf); }

}  // namespace kvcast::lower
