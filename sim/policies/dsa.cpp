// DeepSeek sparse attention and its cache in host memory.
// dsa: DeepSeek-V3.2-Exp's lightning indexer (DeepSeek-AI, technical report, 2025).
// hisparse: the same with all pairs in host memory (sgl-project/sglang, HiSparse).
//
// Idea: a small indexer with its own heads and keys scores every token for all heads of a layer at once; attention
// reads only the best ones, from HBM, or from a buffer into which misses are fetched.
// Selection in each step: index(s) = Σ over index heads of w_h·ReLU(q_h·k_s); the `budget` best tokens, one set for all
// heads of a layer. Traces do not contain the trained queries, keys and weights. These are trained to match the sum of
// the attention weights of all heads, which represents their scores here. hisparse: selected tokens must be in the
// buffer, from which the least recently used tokens are evicted (ties: lower positions first). It starts with the
// prompt's first tokens. Once the sequence is longer than the buffer, the newest token has a slot of its own, which the
// next one overwrites.
// Cost: index keys read L·(d_I + 4) bytes of FP8 numbers and a scale, scores 2·L·H_I·d_I FP8 operations, top-k over L,
// attention over `budget` single tokens. hisparse: a kernel reads the misses from host memory before attention.
// Storage: HBM as full and L·(d_I + 4) per layer; hisparse: HBM budget + spare tokens and the index, pinned DRAM as
// full.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

constexpr double kIndexScale = 4;  // bytes of an index key's scale, in addition to its FP8 numbers

struct DsaSetting {
  std::int64_t budget = 2048;
  double index_heads = 64, index_dim = 128;
  std::int64_t buffer = 0;  // tokens on the GPU; 0: all
};

// The tokens of a layer on the GPU, and the step in which each was last used.
class TokenBuffer {
 public:
  // Starts with the first `size` of `tokens` tokens.
  void start(std::int64_t tokens, std::int64_t size) {
    used_.assign(static_cast<std::size_t>(tokens), kAbsent);
    held_ = std::min(tokens, size);
    std::fill(used_.begin(), used_.begin() + held_, -1);
  }

  // Updates the buffer for step t, which selected `chosen` (ascending) after appending the newest token, the last of
  // `tokens`.
  void use(int t, std::int64_t tokens, std::int64_t size, HeadSelection& out) {
    used_.resize(static_cast<std::size_t>(tokens), kAbsent);
    const auto newest = static_cast<std::int32_t>(tokens) - 1;
    const bool own_slot = tokens > size;
    if (!own_slot) take(newest, t);
    for (const std::int32_t i : out.attended) {
      if (own_slot && i == newest) continue;
      if (take(i, t)) out.fetched.push_back(i);
    }
    if (own_slot) out.evicted.push_back(newest);
    evict(t, held_ - size, out);
  }

 private:
  static constexpr int kAbsent = -2;

  // Evicts `surplus` tokens that step t did not use.
  void evict(int t, std::int64_t surplus, HeadSelection& out) {
    if (surplus <= 0) return;
    std::vector<std::pair<int, std::int32_t>> oldest;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (used_[i] != kAbsent && used_[i] < t) oldest.emplace_back(used_[i], static_cast<std::int32_t>(i));
    }
    std::nth_element(oldest.begin(), oldest.begin() + surplus - 1, oldest.end());
    for (std::int64_t i = 0; i < surplus; ++i) {
      const std::int32_t gone = oldest[static_cast<std::size_t>(i)].second;
      used_[static_cast<std::size_t>(gone)] = kAbsent;
      out.evicted.push_back(gone);
    }
    held_ -= surplus;
    std::sort(out.evicted.begin(), out.evicted.end());
  }

  bool take(std::int32_t token, int t) {
    int& last = used_[static_cast<std::size_t>(token)];
    const bool missed = last == kAbsent;
    if (missed) ++held_;
    last = t;
    return missed;
  }

  std::vector<int> used_;  // by position: step of last use, -1 before the first
  std::int64_t held_ = 0;
};

class DsaSelector final : public Selector {
 public:
  DsaSelector(const LayerInput& layer, const DsaSetting& setting)
      : layer_(layer.layer()), s_(setting), heads_(static_cast<std::size_t>(layer.info().n_kv_heads)) {}

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
    HeadSelection& head = out.heads[0];
    if (s_.budget >= n) {
      append_range(0, n, head.attended);
    } else {
      score(t, n);
      ranking_.select(scores_, static_cast<std::size_t>(s_.budget), head.attended);
      head.counts.scored = n;
    }
    if (s_.buffer > 0) {
      buffer_.use(t, n, s_.buffer, head);
      head.counts.fetched_runs = static_cast<std::int64_t>(head.fetched.size());
      head.counts.corrected = !head.fetched.empty();
    }
    for (std::size_t h = 1; h < heads_; ++h) out.heads[h] = head;
  }

 private:
  void score(int t, std::int64_t n) {
    scores_.assign(static_cast<std::size_t>(n), 0.0f);
    const float scale = 1.0f / std::sqrt(static_cast<float>(layer_.info().head_dim));
    for (int q = 0; q < layer_.info().n_q_heads; ++q) {
      const float* const row = layer_.decode_scores(q).row(static_cast<std::size_t>(t));
      weights_.assign(row, row + n);
      softmax(weights_, scale);
      for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] += weights_[i];
    }
  }

  const trace::Layer& layer_;
  DsaSetting s_;
  std::size_t heads_;  // KV heads, which share one set of tokens
  TokenBuffer buffer_;
  Ranking ranking_;
  std::vector<float> scores_, weights_;
};

class Dsa final : public Policy {
 public:
  explicit Dsa(const DsaSetting& setting) : s_(setting) {}

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return std::make_unique<DsaSelector>(layer, s_);
  }

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    const OpId projected = project(*chunk.model, chunk.batch * chunk.length(), ops);
    const double chosen = chunk.length() * static_cast<double>(s_.budget);
    if (chosen >= chunk.pairs()) return attend(causal_attention(chunk), ops, projected);
    const double seen = chunk.held + chunk.length(), sequences = chunk.batch;
    OpId op = index_scores(sequences * chunk.pairs(), sequences * seen, ops, projected);
    const TopK best{sequences * chunk.length(), chunk.pairs() / chunk.length(), static_cast<double>(s_.budget),
                    kScoreBytes};
    op = ops.compute(Kind::kTopK, "top-k", best, {op});
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
    OpId op = project(*shape.model, shape.batch, ops);
    if (s_.buffer > 0) back_up(shape.batch * shape.model->kv_bytes_per_token_layer(), shape.batch, ops);
    // One set of tokens for all KV heads. Every GPU that shares the layer computes the same one.
    const double scored = shape.sum(&HeadCounts::scored) / shape.model->n_kv_heads;
    const double token = shape.model->kv_bytes_per_token_layer() / shape.model->n_kv_heads;
    if (scored > 0) {
      op = index_scores(scored, scored, ops, op);
      const double rows = shape.batch;
      const TopK best{rows, scored / rows, static_cast<double>(s_.budget), kScoreBytes};
      op = ops.compute(Kind::kTopK, "top-k", best, {op});
      op = fetch(shape, token, ops, op);
    }
    const double unit = scored > 0 ? token / 2 * gathered_run(shape) : 0;
    ops.done(ops.attention(attention_over(shape, unit), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const auto all = static_cast<double>(shape.tokens);
    const double held = s_.buffer > 0 ? std::min(all, static_cast<double>(s_.buffer)) : all;
    const double index = shape.batch * shape.model->layers * all * index_key();
    std::vector<MemoryItem> items = {{graph::Pool::kHbm, graph::Owner::kKvCache, kv_bytes(shape, held)},
                                     {graph::Pool::kHbm, graph::Owner::kIndexKeys, index}};
    if (s_.buffer > 0) items.push_back(host_copy(shape));
    return items;
  }

  Growth growth(const Lengths&) const override { return {.scored = 1, .fill = s_.budget}; }

 private:
  double index_key() const { return s_.index_dim + kIndexScale; }

  // The FP8 products of all index heads with one key per token, on tensor cores. pairs: queries times keys.
  OpId index_scores(double pairs, double keys, LayerOps& ops, OpId after) const {
    PrefillAttention index;
    index.flops = 2 * pairs * s_.index_heads * s_.index_dim;
    index.read_bytes = keys * index_key(), index.write_bytes = pairs * kScoreBytes;
    index.products = graph::Products::kFp8;
    return ops.compute(Kind::kScore, "index scores", index, {after});
  }

  // Mean length of a contiguous piece of the attended tokens.
  static double gathered_run(const DecodeLayer& shape) {
    const double runs = shape.sum(&HeadCounts::attended_runs);
    return runs > 0 ? std::max(1.0, shape.sum(&HeadCounts::attended) / runs) : 1.0;
  }

  // Computes the indexer's queries, keys and weights of `rows` tokens.
  OpId project(const config::Model& model, double rows, LayerOps& ops) const {
    const double hidden = model.hidden;
    const double from = model.latent && model.latent->query_rank > 0 ? model.latent->query_rank : hidden;
    const OpId op =
        ops.compute(Kind::kIndex, "index queries", Gemm{rows, s_.index_heads * s_.index_dim, from}, {ops.ready()});
    return ops.compute(Kind::kIndex, "index keys and weights", Gemm{rows, s_.index_dim + s_.index_heads, hidden}, {op});
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

  DsaSetting s_;
};

Fields<DsaSetting> indexer() {
  using S = DsaSetting;
  return Fields<S>()
      .add(budget_parameter("tokens attended to"), &S::budget)
      .add(whole("index_heads", 64, "", "query heads of the indexer", 1, 1e5), &S::index_heads)
      .add(whole("index_dim", 128, "", "dimensions of an index key", 1, 1e5), &S::index_dim);
}

std::unique_ptr<Policy> make_dsa(const ParameterValues& values, std::int64_t spare) {
  DsaSetting s = indexer().read(values);
  s.buffer = spare > 0 ? s.budget + spare : 0;
  return std::make_unique<Dsa>(s);
}

const char* const kStandIn =
    "traces do not contain the trained indexer: the sum of the heads' attention weights, which it is trained to match, "
    "replaces its scores";

}  // namespace

Descriptor describe_dsa() {
  Descriptor d;
  d.name = "dsa";
  d.sentence = "Keeps everything on the GPU; a small indexer selects one set of tokens for all heads of a layer.";
  d.category = Category::kGpuRetrieval;
  d.paper = "DeepSeek-AI, DeepSeek-V3.2-Exp, technical report, 2025";
  d.for_latent = true;
  d.parameters = indexer().parameters();
  d.budget_counts = BudgetRule::Counts::kAttended;
  d.budget_convention = "tokens per layer, the same ones in all heads";
  d.formulas = {"traffic: L·(d_I + 4) + budget·(r + d_R)·b per step", "storage: L·(r + d_R)·b + L·(d_I + 4)"};
  d.differences = {kStandIn, "the prompt's own attention is timed as sparse and replayed as full",
                   "scores in single precision; the released kernel multiplies FP8 numbers"};
  d.make = [](const ParameterValues& values) { return make_dsa(values, 0); };
  return d;
}

Descriptor describe_hisparse() {
  Descriptor d;
  d.name = "hisparse";
  d.sentence = "DSA with all pairs in host memory and an LRU buffer of tokens on the GPU; misses are fetched.";
  d.category = Category::kHostRetrieval;
  d.paper = "SGLang, HiSparse, 2026 (sgl-project/sglang), over DeepSeek-V3.2-Exp";
  d.for_latent = true;
  d.parameters = indexer().parameters();
  d.parameters.push_back(
      whole("spare", 2048, "tokens", "tokens of a sequence's buffer in each layer in addition to the budget", 1));
  d.budget_counts = BudgetRule::Counts::kAttended;
  d.budget_convention = "tokens per layer, the same ones in all heads";
  d.formulas = {"traffic: L·(d_I + 4) + budget·(r + d_R)·b per step; host to device (r + d_R)·b per miss",
                "storage: HBM (budget + spare)·(r + d_R)·b + L·(d_I + 4), pinned DRAM L·(r + d_R)·b"};
  d.differences = {kStandIn, "the prompt's own attention is timed as sparse and replayed as full"};
  d.make = [](const ParameterValues& values) { return make_dsa(values, values.integer("spare")); };
  return d;
}

}  // namespace kvcast::policy
