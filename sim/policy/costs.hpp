// Pieces of work that many policies share: bytes, flops and order, never time.
#pragma once

#include <algorithm>

#include "policy/layer_ops.hpp"
#include "policy/pages.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

inline constexpr double kScoreBytes = 4;  // a single-precision score
inline constexpr double kIndexBytes = 4;  // a page or token number

// Dimensions of a model as doubles, for products. element: bytes of one number of a cached key or value.
struct Dims {
  double q_heads, kv_heads, group, d, element;
  explicit Dims(const config::Model& model)
      : q_heads(model.n_q_heads),
        kv_heads(model.n_kv_heads),
        group(model.group()),
        d(model.head_dim),
        element(model.cache_bytes()) {}
  double row() const { return d * element; }  // bytes of one key of one head
};

// Pairs of the queries at positions 1 … n with the tokens up to each, but at most `most` of them.
inline double capped_pairs(double n, double most) {
  const double seeing_all = std::min(n, most);
  return seeing_all * (seeing_all + 1) / 2 + (n - seeing_all) * most;
}

// Both products over the chunk's query-key pairs, scaled by its density. Queries, keys and values are read once,
// outputs written once.
PrefillAttention causal_attention(const PrefillChunk& chunk);
// Attention over the tokens that the heads of `shape` attend to. unit_bytes: contiguous bytes of K behind one index; 0
// if rows are contiguous.
DecodeAttention attention_over(const DecodeLayer& shape, double unit_bytes);
// The same for query heads that may select separately from one cache: where those of a sequence read everything, they
// share the pairs of their KV head.
DecodeAttention attention_to_selected(const DecodeLayer& shape, double unit_bytes);
// Units whose scores are estimated, over KV heads: query heads that select separately share what the estimate reads.
double units_read(const DecodeLayer& shape);
// Mean contiguous bytes of K around a token that is gathered by itself: neighbouring tokens form one piece.
double gathered_unit(const DecodeLayer& shape);

// kSoftmax: the scores of each query head are weighed by a softmax over the row before they are reduced.
enum class Reduction { kPlain, kSoftmax };

// kByDimension: the index is stored dimension by dimension, and a thread block scores 256 units of it.
enum class Index { kByUnit, kByDimension };

// States the blocks of a kernel that scores `units` of each of `rows` over an index by dimension, as kvcast's own
// (kernels/cuda/dim_score.cuh): 128 threads whose sums stay in registers, so that an SM holds four blocks.
void score_by_dimension(Kernel& work, double rows, double units);

// Reads `read_bytes` of an index to compute scores, reduces them over the group if heads share a selection, and finds
// the k best of each selecting head; on the compute stream after `after`. Adds no op if nothing was scored. flops:
// those of the scoring.
OpId score_and_rank(const DecodeLayer& shape, double read_bytes, double flops, double k, LayerOps& ops, OpId after,
                    Lane lane = Lane::kCompute, Reduction reduction = Reduction::kPlain, Index index = Index::kByUnit);

// Bytes of one number of a page summary.
double summary_element(const config::Model& model, SummaryFormat format);
// Reads the prompt's keys once and writes [min | max] of its pages, for `tokens` tokens per head.
OpId summarise_pages(const PrefillLayer& shape, std::int64_t tokens, int page, LayerOps& ops, OpId after,
                     SummaryFormat format = SummaryFormat::kCache);
// Reads and writes the bounds of the page that the new token belongs to.
OpId update_page_summary(const DecodeLayer& shape, LayerOps& ops, SummaryFormat format = SummaryFormat::kCache);
// KV pairs of `tokens` tokens per head, over all layers and sequences.
double kv_bytes(const MemoryShape& shape, double tokens, bool per_query_head = false);
// Page summaries [min | max] of `tokens` tokens per head, over all layers and sequences.
double summary_bytes(const MemoryShape& shape, std::int64_t tokens, int page,
                     SummaryFormat format = SummaryFormat::kCache);

}  // namespace kvcast::policy
