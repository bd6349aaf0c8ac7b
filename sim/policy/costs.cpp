#include "policy/costs.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast::policy {

PrefillAttention causal_attention(const PrefillChunk& chunk) {
  const Dims m(*chunk.model);
  const double rows = chunk.batch * chunk.length();
  const double seen = chunk.batch * (chunk.held + chunk.length());
  double queries = rows * m.q_heads * m.d * config::Model::kElementBytes;
  double pairs = 2 * seen * m.kv_heads * m.row();
  double dims = 2 * m.d;
  if (const auto& latent = chunk.model->latent) {  // keys and values of all heads are computed from the latent vectors
    dims = latent->key_dim + latent->rope_dim + latent->value_dim;
    queries = rows * m.q_heads * dims / 2 * config::Model::kElementBytes;
    pairs = seen * m.q_heads * dims * config::Model::kElementBytes;
  }
  PrefillAttention work;
  work.flops = 2.0 * chunk.batch * m.q_heads * dims * chunk.pairs() * chunk.density;
  work.read_bytes = queries + pairs;
  work.write_bytes = queries;
  return work;
}

namespace {

// vLLM's kernel for TurboQuant (v1/attention/ops/triton_turboquant_decode.py): one warp for each query head and each of
// 32 parts of a sequence, which takes 4 tokens at a time and sums on the vector units. Instructions on a number are the
// operations of the source: keys in FP8 two 64-bit additions for the address (4), mask, load, conversion, product,
// choice, sum; codes a second byte, 4 operations on bits, the address and load of the codebook, their norm (3) and
// its factor, no conversion; values in 4 bits address (4), mask, load, shift, mask of bits, conversion, scale, product,
// sum; those in 3 bits a second byte and 2 operations more.
void unpack_by_query_head(DecodeAttention& work, config::CacheFormat format) {
  constexpr double kParts = 32, kTile = 4, kLanes = 32, kFlops = 2;  // an instruction takes the place of two FLOP
  constexpr double kFp8Key = 10, kCode = 20, kInt4Value = 12, kInt3Value = 15;
  const double instructions =
      (format.rotated() ? kCode : kFp8Key) + (format.values == config::Precision::kInt3 ? kInt3Value : kInt4Value);
  work.unpack_flops = kFlops * instructions * work.head_dim * work.tokens * work.group;
  work.separate_heads = true;
  work.serial_tiles = std::ceil(std::ceil(work.longest / kParts) / kTile);
  work.tile_instructions = kTile * work.head_dim / kLanes * instructions;
}

}  // namespace

DecodeAttention attention_over(const DecodeLayer& shape, double unit_bytes) {
  const Dims m(*shape.model);
  DecodeAttention work;
  work.rows = static_cast<double>(shape.heads.size());
  work.group = shape.per_query_head ? 1 : m.group;
  work.head_dim = m.d;
  work.tokens = shape.sum(&HeadCounts::attended);
  work.longest = shape.largest(&HeadCounts::attended);
  // Rows of equal budgets differ by a page that is not full.
  constexpr double kEqual = 1.1;
  work.unequal = shape.unequal() || work.longest * work.rows > kEqual * work.tokens;
  work.element_bytes = m.element;
  work.unit_bytes = unit_bytes;
  double numbers = 2 * m.d;
  if (const auto& latent = shape.model->latent) {
    // Queries are projected into the latent space: all heads read one vector, as key with RoPE and as value without.
    work.head_dim = latent->cached() / 2.0;
    work.element_bytes = config::cache_element_bytes(shape.model->cache, latent->cached());
    work.product_dims = latent->cached() + latent->rank;
    numbers = latent->cached();
  }
  if (shape.model->cache.turboquant) {
    unpack_by_query_head(work, shape.model->cache);
  } else if (shape.model->cache != config::Precision::kBf16) {
    work.converted = numbers * work.tokens;
  }
  work.fp8 = shape.model->cache == config::Precision::kFp8;
  return work;
}

DecodeAttention attention_to_selected(const DecodeLayer& shape, double unit_bytes) {
  DecodeAttention work = attention_over(shape, unit_bytes);
  if (!shape.per_query_head) return work;
  const double group = Dims(*shape.model).group, all = work.tokens;
  double rows = 0, tokens = 0;  // of sequences that share
  for (std::size_t i = 0; i < shape.sequences.size(); ++i) {
    const std::span<const HeadCounts> heads = shape.heads_of(i);
    const auto reads_all = [&](const HeadCounts& head) { return head.attended >= shape.sequences[i].tokens; };
    if (!std::ranges::all_of(heads, reads_all)) continue;
    rows += static_cast<double>(heads.size()), tokens += shape.sum_of(i, &HeadCounts::attended);
  }
  if (rows == work.rows) work.group = group;
  work.rows = (work.rows - rows) + rows / group, work.tokens = (work.tokens - tokens) + tokens / group;
  if (all > 0) work.converted *= work.tokens / all;
  return work;
}

double units_read(const DecodeLayer& shape) {
  return shape.sum(&HeadCounts::scored) / (shape.per_query_head ? shape.model->group() : 1);
}

double gathered_unit(const DecodeLayer& shape) {
  const double runs = shape.sum(&HeadCounts::attended_runs);
  const double tokens = shape.sum(&HeadCounts::attended);
  return Dims(*shape.model).row() * (runs > 0 ? std::max(1.0, tokens / runs) : 1.0);
}

void score_by_dimension(Kernel& work, double rows, double units) {
  constexpr double kUnits = 256;
  work.blocks = rows * std::ceil(units / kUnits), work.threads = 128, work.per_sm = 4;
}

OpId score_and_rank(const DecodeLayer& shape, double read_bytes, double flops, double k, LayerOps& ops, OpId after,
                    Lane lane, Reduction reduction, Index index) {
  constexpr double kSoftmaxReads = 3;  // for the maximum, the sum and the weights
  const Dims m(*shape.model);
  const double scored = shape.sum(&HeadCounts::scored);
  if (scored <= 0) return after;
  const auto rows = static_cast<double>(shape.heads.size());
  const double scores = scored * (shape.per_query_head ? 1 : m.group);  // every query head scores each unit
  Kernel estimate{KernelClass::kScore, read_bytes, scores * kScoreBytes};
  estimate.flops = flops;
  if (index == Index::kByDimension) score_by_dimension(estimate, rows, scored / rows);
  OpId op = ops.kernel(lane, Kind::kScore, "estimate", estimate, {after});
  if (!shape.per_query_head && m.group > 1) {
    Kernel reduce{KernelClass::kReduce, scores * kScoreBytes, scored * kScoreBytes};
    reduce.flops = scores;
    if (reduction == Reduction::kSoftmax) {
      // One block holds the group's rows of a KV head, since a weight depends on the whole row.
      reduce.flops *= kSoftmaxReads;
      constexpr double kShort = 512, kThreads = 256;  // a short row occupies half a block's threads
      reduce.blocks = rows, reduce.passes = kSoftmaxReads;
      if (scored / rows <= kShort) reduce.threads = kThreads;
    }
    op = ops.kernel(lane, Kind::kScore, "reduce over group", reduce, {op});
  }
  const TopK best{rows, scored / rows, std::min(k, scored / rows), kScoreBytes};
  return ops.kernel(lane, Kind::kTopK, "top-k", best, {op});
}

double summary_element(const config::Model& model, SummaryFormat format) {
  return format == SummaryFormat::kCache ? model.cache_bytes() : 1;
}

OpId summarise_pages(const PrefillLayer& shape, std::int64_t tokens, int page, LayerOps& ops, OpId after,
                     SummaryFormat format) {
  const Dims m(*shape.model);
  const double pages = static_cast<double>((tokens + page - 1) / page);
  const double read = shape.batch * m.kv_heads * static_cast<double>(tokens) * m.row();
  const double written = shape.batch * m.kv_heads * pages * 2 * m.d * summary_element(*shape.model, format);
  Kernel work{KernelClass::kReduce, read, written};
  work.flops = 2 * read / m.element;  // a comparison for the minimum and one for the maximum
  // A warp for each page of a KV head, eight in a block; registers allow an SM six of these.
  constexpr double kWarps = 8;
  work.blocks = std::ceil(shape.batch * m.kv_heads * pages / kWarps), work.threads = 32 * kWarps, work.per_sm = 6;
  return ops.compute(Kind::kIndex, "page summaries", work, {after});
}

OpId update_page_summary(const DecodeLayer& shape, LayerOps& ops, SummaryFormat format) {
  const Dims m(*shape.model);
  const double bytes = shape.batch * m.kv_heads * 2 * m.d * summary_element(*shape.model, format);
  const Kernel work{KernelClass::kElementwise, bytes, bytes};
  return ops.compute(Kind::kIndex, "update page summary", work, {ops.ready()});
}

double kv_bytes(const MemoryShape& shape, double tokens, bool per_query_head) {
  const Dims m(*shape.model);
  const double token = per_query_head ? 2 * m.q_heads * m.row() : shape.model->kv_bytes_per_token_layer();
  return shape.batch * shape.model->layers * token * tokens;
}

double summary_bytes(const MemoryShape& shape, std::int64_t tokens, int page, SummaryFormat format) {
  const double share = summary_element(*shape.model, format) / shape.model->cache_bytes();
  return share * kv_bytes(shape, static_cast<double>((tokens + page - 1) / page));
}

}  // namespace kvcast::policy
