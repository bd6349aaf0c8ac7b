// Bytes per score in bfloat16 (huggingface/transformers, models/llama/modeling_llama.py, eager_attention_forward):
// written by QKᵀ 2, scaled 2 + 2, masked 2 + 2, converted 2 + 4, softmax 4 + 4, converted 4 + 2, read by the product
// with V 2: 32 in all. PyTorch has a softmax from float16 to single precision, but none from bfloat16 (pytorch/pytorch,
// aten/src/ATen/native/SoftMax.cpp). A prompt's mask, 2 for each score, is read again for each head; a step's is small.
#include "lower/eager.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::Lane;
using graph::OpId;

OpId eager_attention(LoweredBlock& block, const EagerAttention& work, OpId after) {
  const auto pass = [&](const char* label, double read, double write, double flops,
                        graph::KernelClass cls = graph::KernelClass::kElementwise) {
    after = block.compute(Kind::kAttention, label, graph::Kernel{cls, read, write, flops}, {after});
  };
  const double s = work.scores, repeated = work.kv_bytes * work.group;
  const auto product = [&](const char* label, double read, double write) {
    const double of_cache = work.of_step ? repeated / 2 : 0;
    const graph::PrefillAttention both{2 * s * work.head_dim, read, write, of_cache};
    after = block.compute(Kind::kAttention, label, both, {after});
  };
  if (work.group > 1) {
    pass("repeat keys", work.kv_bytes / 2, repeated / 2, 0, graph::KernelClass::kConcatenate);
    pass("repeat values", work.kv_bytes / 2, repeated / 2, 0, graph::KernelClass::kConcatenate);
  }
  product("scores", work.q_bytes + repeated / 2, s * kHalfBytes);
  pass("scale", s * kHalfBytes, s * kHalfBytes, s);
  pass("mask", s * kHalfBytes * (work.of_step ? 1 : 2), s * kHalfBytes, s);
  pass("convert scores", s * kHalfBytes, s * kSingleBytes, 0);
  pass("softmax", s * kSingleBytes, s * kSingleBytes, 4 * s);
  pass("convert weights", s * kSingleBytes, s * kHalfBytes, 0);
  product("weighted values", s * kHalfBytes + repeated / 2, work.q_bytes);
  return after;
}

double eager_score_bytes(const EagerAttention& work) { return work.scores * (kHalfBytes + 2 * kSingleBytes); }

}  // namespace kvcast::lower
