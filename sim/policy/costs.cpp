#include "policy/costs.hpp"

#include <algorithm>

namespace kvcast::policy {

using graph::Kind;
using graph::Lane;

graph::PrefillAttention causal_attention(const PrefillChunk& chunk) {
  const Dims m(*chunk.model);
  const double rows = chunk.batch * chunk.length(), queries = rows * m.q_heads * m.row();
  graph::PrefillAttention work;
  work.flops = 4.0 * chunk.batch * m.q_heads * m.d * chunk.pairs() * chunk.density;
  work.read_bytes = queries + 2 * chunk.batch * m.kv_heads * (chunk.held + chunk.length()) * m.row();
  work.write_bytes = queries;
  return work;
}

graph::DecodeAttention attention_over(const DecodeLayer& shape, double unit_bytes) {
  const Dims m(*shape.model);
  graph::DecodeAttention work;
  work.rows = static_cast<double>(shape.heads.size());
  work.group = shape.per_query_head ? 1 : m.group;
  work.head_dim = m.d;
  work.tokens = shape.sum(&HeadCounts::attended);
  work.longest = shape.largest(&HeadCounts::attended);
  work.element_bytes = m.element;
  work.unit_bytes = unit_bytes;
  return work;
}

double gathered_unit(const DecodeLayer& shape) {
  const double runs = shape.sum(&HeadCounts::attended_runs);
  const double tokens = shape.sum(&HeadCounts::attended);
  return Dims(*shape.model).row() * (runs > 0 ? std::max(1.0, tokens / runs) : 1.0);
}

graph::OpId score_and_rank(const DecodeLayer& shape, double read_bytes, double flops, double k, LayerOps& ops,
                           graph::OpId after, graph::Lane lane) {
  const Dims m(*shape.model);
  const double scored = shape.sum(&HeadCounts::scored);
  if (scored <= 0) return after;
  const auto rows = static_cast<double>(shape.heads.size());
  const double scores = scored * (shape.per_query_head ? 1 : m.group);  // each query head scores every unit
  graph::Kernel estimate{graph::KernelClass::kScore, read_bytes, scores * kScoreBytes};
  estimate.flops = flops;
  graph::OpId op = ops.kernel(lane, Kind::kScore, "estimate", estimate, {after});
  if (!shape.per_query_head && m.group > 1) {
    graph::Kernel reduce{graph::KernelClass::kReduce, scores * kScoreBytes, scored * kScoreBytes};
    reduce.flops = scores;
    op = ops.kernel(lane, Kind::kScore, "reduce over group", reduce, {op});
  }
  const graph::TopK best{rows, scored / rows, std::min(k, scored / rows), kScoreBytes};
  return ops.kernel(lane, Kind::kTopK, "top-k", best, {op});
}

graph::OpId summarise_pages(const PrefillLayer& shape, std::int64_t tokens, int page, LayerOps& ops,
                            graph::OpId after) {
  const Dims m(*shape.model);
  const double pages = static_cast<double>((tokens + page - 1) / page);
  const double read = shape.batch * m.kv_heads * static_cast<double>(tokens) * m.row();
  graph::Kernel work{graph::KernelClass::kReduce, read, shape.batch * m.kv_heads * pages * 2 * m.row()};
  work.flops = 2 * read / m.element;  // one comparison for the minimum, one for the maximum
  return ops.kernel(Lane::kCompute, Kind::kIndex, "page summaries", work, {after});
}

graph::OpId update_page_summary(const DecodeLayer& shape, LayerOps& ops) {
  const Dims m(*shape.model);
  const double bytes = shape.batch * m.kv_heads * 2 * m.row();
  const graph::Kernel work{graph::KernelClass::kElementwise, bytes, bytes};
  return ops.kernel(Lane::kCompute, Kind::kIndex, "update page summary", work, {ops.ready()});
}

double kv_bytes(const MemoryShape& shape, double tokens, bool per_query_head) {
  const Dims m(*shape.model);
  return shape.batch * shape.model->layers * 2 * (per_query_head ? m.q_heads : m.kv_heads) * tokens * m.row();
}

double summary_bytes(const MemoryShape& shape, std::int64_t tokens, int page) {
  return kv_bytes(shape, static_cast<double>((tokens + page - 1) / page));
}

}  // namespace kvcast::policy
