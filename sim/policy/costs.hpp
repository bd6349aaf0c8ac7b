// Pieces of work that many policies have in common. Bytes, flops and order; never time.
#pragma once

#include "policy/layer_ops.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

inline constexpr double kScoreBytes = 4;  // a score in single precision
inline constexpr double kIndexBytes = 4;  // a page or token number

// Shapes that costs are made of, in double precision for products. element: bytes of a number of a cached key or value.
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

// Both products over the chunk's pairs, as many of them as its density says; queries, keys and values read once,
// outputs written.
graph::PrefillAttention causal_attention(const PrefillChunk& chunk);
// Attention over what the heads of `shape` attend to. unit_bytes: contiguous bytes of K behind one index, 0 where the
// rows lie contiguous.
graph::DecodeAttention attention_over(const DecodeLayer& shape, double unit_bytes);
// Contiguous bytes of K that single gathered tokens lie in on average: neighbours among them share a piece.
double gathered_unit(const DecodeLayer& shape);

// Scoring `read_bytes` of an index, reducing the scores over the group where heads share a selection, and the k best of
// each selecting head; on the compute stream after `after`. Nothing where nothing was scored. flops: of the scoring.
graph::OpId score_and_rank(const DecodeLayer& shape, double read_bytes, double flops, double k, LayerOps& ops,
                           graph::OpId after, graph::Lane lane = graph::Lane::kCompute);

// Reads the prompt's keys once and writes [min | max] of its pages, `tokens` a head.
graph::OpId summarise_pages(const PrefillLayer& shape, std::int64_t tokens, int page, LayerOps& ops, graph::OpId after);
// Reads and writes the bounds of the page that the new token falls into.
graph::OpId update_page_summary(const DecodeLayer& shape, LayerOps& ops);
// KV pairs of `tokens` a head, all layers and sequences.
double kv_bytes(const MemoryShape& shape, double tokens, bool per_query_head = false);
// Page summaries [min | max] of `tokens` a head, all layers and sequences.
double summary_bytes(const MemoryShape& shape, std::int64_t tokens, int page);

}  // namespace kvcast::policy
