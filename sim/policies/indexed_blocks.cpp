// Selection in each step, in one list for the layer or one for each KV head: units of `block` tokens by the score of
// the indexer, `budget` tokens in all. Traces do not contain the trained queries, keys and weights. These are trained
// to match the sum of the attention weights of the heads that share the selection, which represents their scores here.
// Cost of a layer with an indexer: projections; entries read once, L / stride · entry_bytes; scores, 2·H_I·d_I products
// an entry; top-k over blocks. All layers: attention over the chosen tokens. With a buffer a kernel reads the misses
// from host memory before attention.
// Storage: HBM as full, and entries in layers with an indexer; with a buffer the buffer and entries, pinned DRAM as
// full.
#include "policies/indexed_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/costs.hpp"
#include "policy/pages.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/token_buffer.hpp"

namespace kvcast::policy {
namespace {

class IndexedSelector final : public Selector {
 public:
  IndexedSelector(const LayerInput& layer, const BlockIndexer& setting)
      : layer_(layer.layer()), s_(setting), heads_(layer.info().n_kv_heads) {}

  void prefill(LayerSelection& resident) override {
    const std::int64_t prompt = layer_.info().prompt_tokens;
    const std::int64_t held = s_.buffer > 0 ? std::min(prompt, s_.buffer) : prompt;
    resident.reset(heads_, false);
    buffer_.start(prompt, held);
    for (HeadSelection& head : resident.heads) append_range(0, held, head.attended);
  }

  void step(int t, LayerSelection& out) override {
    const std::int64_t n = layer_.info().prompt_tokens + t + 1;
    out.reset(heads_, false);
    const int group = layer_.info().group();
    for (std::size_t h = 0; h < (s_.by_group ? heads_ : 1); ++h) {
      HeadSelection& head = out.heads[h];
      const int first = s_.by_group ? static_cast<int>(h) * group : 0;
      choose(t, n, first, s_.by_group ? first + group : layer_.info().n_q_heads, head);
    }
    if (s_.buffer > 0) {
      HeadSelection& head = out.heads[0];
      buffer_.use(t, n, s_.buffer, head);
      head.counts.fetched_runs = head.fetched.size();
      head.counts.corrected = !head.fetched.empty();
    }
    for (std::size_t h = 1; h < heads_ && !s_.by_group; ++h) out.heads[h] = out.heads[0];
  }

 private:
  void choose(int t, std::int64_t n, int first_head, int end_head, HeadSelection& head) {
    if (s_.budget >= n) return append_range(0, n, head.attended);
    score_tokens(t, n, first_head, end_head);
    const std::int64_t whole = s_.tail_beside ? n / s_.block : (n + s_.block - 1) / s_.block;
    blocks_.clear();
    for (std::int64_t b = 0; b < whole; ++b)
      blocks_.push_back(score_block(b * s_.block, std::min(n, (b + 1) * s_.block)));
    // Tokens of an open block beside the others are read in any case.
    const std::int64_t ranked = s_.tail_beside ? whole * s_.block : n;
    rank_pages_first(blocks_, s_.block, ranked, s_.sink, std::max<std::int64_t>(0, s_.recent - (n - ranked)));
    ranking_.select(blocks_, s_.blocks(), chosen_);
    append_page_tokens(chosen_, s_.block, 0, n, head.attended);
    if (s_.tail_beside) append_range(whole * s_.block, n, head.attended);
    head.counts.scored = n / s_.stride;
  }

  void score_tokens(int t, std::int64_t n, int first_head, int end_head) {
    tokens_.assign(n, 0.0f);
    const float scale = 1.0f / std::sqrt(static_cast<float>(layer_.info().head_dim));
    for (int q = first_head; q < end_head; ++q) {
      const float* const row = layer_.decode_scores(q).row(t);
      weights_.assign(row, row + n);
      softmax(weights_, scale);
      for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] += weights_[i];
    }
  }

  float score_block(std::int64_t first, std::int64_t end) const {
    const auto from = tokens_.begin() + first, to = tokens_.begin() + end;
    if (s_.maximum || end - first == 1) return *std::max_element(from, to);
    double sum = 0;
    for (auto at = from; at != to; ++at) sum += *at;
    return static_cast<float>(sum / (end - first));
  }

  const trace::Layer& layer_;
  BlockIndexer s_;
  std::size_t heads_;  // KV heads
  TokenBuffer buffer_;
  Ranking ranking_;
  std::vector<float> tokens_, weights_, blocks_;
  std::vector<std::int32_t> chosen_;
};

class IndexedBlocks final : public SelectsBy<IndexedSelector, BlockIndexer> {
 public:
  using SelectsBy::SelectsBy;

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    const OpId projected = project(*chunk.model, chunk.layer, chunk.batch * chunk.length(), ops);
    const double seen = chunk.held + chunk.length(), sequences = chunk.batch;
    if (seen <= s_.budget) return attend(causal_attention(chunk), ops, projected);
    const double most = s_.blocks() * s_.block, chosen = capped_pairs(seen, most) - capped_pairs(chunk.held, most);
    OpId op = projected;
    if (s_.indexes(chunk.layer)) {
      const double rows = sequences * chunk.length() * s_.lists(chunk.model->n_kv_heads);
      op = index_scores(s_, chunk.model->n_kv_heads, sequences * chunk.pairs(), sequences * seen, ops, op);
      op = best_blocks(s_, rows, chunk.pairs() / chunk.length(), ops, op);
    }
    PrefillChunk sparse = chunk;
    sparse.density = chosen / chunk.pairs();
    return attend(causal_attention(sparse), ops, op);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    if (s_.buffer == 0) return;
    const double tokens = shape.batch * static_cast<double>(shape.length());
    back_up(tokens * shape.model->kv_bytes_per_token_layer(), shape.batch, ops);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const config::Model& model = *shape.model;
    OpId op = project(model, shape.layer, shape.batch, ops);
    if (s_.buffer > 0) back_up(shape.batch * model.kv_bytes_per_token_layer(), shape.batch, ops);
    // Counts are the same for all KV heads. Every GPU that shares the layer reads the same entries.
    const double entries = shape.sum(&HeadCounts::scored) / model.n_kv_heads;
    const double tokens = entries * s_.stride;
    const double token = model.kv_bytes_per_token_layer() / model.n_kv_heads;
    if (entries > 0) {
      if (s_.indexes(shape.layer)) {
        op = index_scores(s_, model.n_kv_heads, tokens, tokens, ops, op);
        op = best_blocks(s_, shape.batch * s_.lists(model.n_kv_heads), tokens / shape.batch, ops, op);
      }
      op = fetch(shape, token, ops, op);
    }
    const double unit = entries > 0 ? token / 2 * gathered_run(shape) : 0;
    ops.done(ops.attention(attention_over(shape, unit), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const auto all = static_cast<double>(shape.tokens);
    const double held = s_.buffer > 0 ? std::min(all, static_cast<double>(s_.buffer)) : all;
    double indexed = 0;
    for (int layer = 0; layer < shape.model->layers; ++layer) indexed += s_.indexes(layer) ? 1 : 0;
    const double index = shape.batch * indexed * all / s_.stride * s_.entry_bytes;
    std::vector<MemoryItem> items = {{graph::Pool::kHbm, graph::Owner::kKvCache, kv_bytes(shape, held)},
                                     {graph::Pool::kHbm, graph::Owner::kIndexKeys, index}};
    if (s_.buffer > 0) items.push_back(host_copy(shape));
    return items;
  }

  // The open block has half of its tokens on average.
  Growth growth(const Lengths&) const override {
    const std::int64_t half = s_.block / 2, open = s_.tail_beside ? half : s_.recent > 0 ? -half : 0;
    return {.scored = 1 / static_cast<double>(s_.stride),
            .fill = s_.budget,
            .when_full = s_.block == 1 ? 0 : s_.blocks() * s_.block + open};
  }

 private:
  // Mean length of a contiguous piece of the attended tokens.
  static double gathered_run(const DecodeLayer& shape) {
    const double runs = shape.sum(&HeadCounts::attended_runs);
    return runs > 0 ? std::max(1.0, shape.sum(&HeadCounts::attended) / runs) : 1.0;
  }

  // Computes the indexer's queries, keys and weights of `rows` tokens.
  OpId project(const config::Model& model, int layer, double rows, LayerOps& ops) const {
    if (!s_.indexes(layer)) return ops.ready();
    const double hidden = model.hidden, heads = s_.query_heads(model.n_kv_heads);
    const double from = model.latent && model.latent->query_rank > 0 ? model.latent->query_rank : hidden;
    const OpId op = ops.compute(Kind::kIndex, "index queries", Gemm{rows, heads * s_.dim, from}, {ops.ready()});
    const char* const label = s_.weights ? "index keys and weights" : "index keys";
    return ops.compute(Kind::kIndex, label, Gemm{rows, s_.dim + (s_.weights ? heads : 0), hidden}, {op});
  }

  static OpId attend(const PrefillAttention& work, LayerOps& ops, OpId after) {
    return ops.compute(Kind::kAttention, "prefill attention", work, {after});
  }

  static void back_up(double bytes, double sequences, LayerOps& ops) {
    const Copy copy{Direction::kDeviceToHost, CopyKind::kBatched, sequences, bytes / sequences, 1, Lane::kBackupThread};
    ops.copy(Lane::kBackup, "back up pairs", copy, {ops.ready()});
  }

  // Reads the missing tokens from host memory in one kernel.
  static OpId fetch(const DecodeLayer& shape, double token, LayerOps& ops, OpId after) {
    const double missed = shape.sum(&HeadCounts::fetched_runs);
    if (missed <= 0) return after;
    const Copy copy{Direction::kHostToDevice, CopyKind::kZeroCopy, missed, token, 1, Lane::kHost};
    return ops.copy(Lane::kCompute, "fetch misses", copy, {after});
  }
};

}  // namespace

std::unique_ptr<Policy> index_blocks(const BlockIndexer& indexer) { return std::make_unique<IndexedBlocks>(indexer); }

}  // namespace kvcast::policy
