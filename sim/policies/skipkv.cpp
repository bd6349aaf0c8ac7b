// SkipKV (Tian et al., "SkipKV: Selective Skipping of KV Generation and Storage for Efficient Inference with Large
// Reasoning Models", 2025, arXiv 2512.07993), as in CURRENTF/Sparse-vLLM (engine/cache_manager/skipkv.py) without
// sentences, which need text, and without steering, which needs trained vectors.
//
// Idea: reasoning repeats itself in whole passages: R-KV's redundancy of tokens, and a penalty for passages that later
// ones resemble.
// Selection, the same in all heads of a layer, whenever it holds budget + buffer tokens: importance = the largest
// weight of the latest query over all heads, each a softmax over the tokens after the sink. Of the last `compared`
// tokens before the recent ones two terms are subtracted. Redundancy: alpha times the softmax over them of the mean
// cosine with the others, of cosines from `similarity` on, without the last later one of each row; keys are those of
// all KV heads together. Passages: runs of `passage` of them, each with the mean of its keys: the largest cosine with a
// later run, if it is at least `passage_similarity`. The first `sink` and the last `recent` tokens stay, and the best
// of the others, `budget` in all. A prompt of that many tokens is compressed at its end, or after each `block`. Cost of
// one compression: the query's weights, compared²·n_kv·d multiplications, top-k, compaction. It is spread evenly over
// the `buffer` steps between two of them. Storage: 2·n_kv·(budget + buffer)·d·b.
#include <algorithm>
#include <cmath>

#include "base/floats.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::skipkv {
namespace {

struct SkipKvSetting {
  Quota quota;
  std::int64_t buffer = 0, block = 0, compared = 0, passage = 0;
  double alpha = 0, similarity = 0, passage_similarity = 0;
  std::int64_t full() const { return quota.budget + buffer; }
};

class SkipKvRule final : public EvictionRule {
 public:
  SkipKvRule(const trace::Layer& layer, const SkipKvSetting& setting) : layer_(layer), rows_(layer), s_(setting) {
    const std::vector<std::int64_t> ends = prompt_ends(layer.info(), s_.block);
    const auto full = std::lower_bound(ends.begin(), ends.end(), s_.full());
    if (full != ends.end())
      require_prompt_queries(layer.info(), *full - 1,
                             "skipkv ranks by the last query of the prompt or of each block and turn");
  }

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    compress(held, [&](int q_head, const Held& list) {
      const int group = layer_.info().group();
      if (q_head % group == 0) rows_.hold(q_head / group, list);
      rows_.visit(q_head, end - 1, end,
                  [&](std::int64_t, std::span<const float> row) { weights_.assign(row.begin(), row.end()); });
    });
  }
  void after_step(int t, std::vector<Held>& held) override {
    compress(held, [&](int q_head, const Held& list) { step_weights(layer_, q_head, t, list, weights_); });
  }

 private:
  // weigh(q head, list) writes the latest query's weights to weights_.
  template <typename Weigh>
  void compress(std::vector<Held>& held, const Weigh& weigh) {
    Held& list = held[0];
    if (static_cast<std::int64_t>(list.size()) < s_.full()) return;
    const auto sinks =
        static_cast<std::size_t>(std::lower_bound(list.begin(), list.end(), s_.quota.sink) - list.begin());
    scores_.assign(list.size(), 0.0f);
    for (int q = 0; q < layer_.info().n_q_heads; ++q) {
      weigh(q, list);
      double sum = 0;
      for (std::size_t i = sinks; i < list.size(); ++i) sum += static_cast<double>(weights_[i]);
      for (std::size_t i = sinks; i < list.size(); ++i)
        scores_[i] = std::max(scores_[i], static_cast<float>(static_cast<double>(weights_[i]) / sum));
    }
    const std::size_t end = list.size() - index(s_.quota.recent), count = std::min(end - sinks, index(s_.compared));
    if (count > 0) penalise(list, end - count, count);
    keep_best(list, scores_, s_.quota);
    std::fill(held.begin() + 1, held.end(), list);
  }

  // Subtracts both terms from the scores of `count` tokens of the list from `first` on.
  void penalise(const Held& list, std::size_t first, std::size_t count) {
    const trace::TraceInfo& info = layer_.info();
    const std::size_t d = index(info.head_dim), width = d * index(info.n_kv_heads);
    std::vector<float> keys(count * width);
    for (std::size_t i = 0; i < count; ++i) {
      for (int h = 0; h < info.n_kv_heads; ++h) {
        const float* const key = layer_.keys(h).row(index(list[first + i]));
        std::copy(key, key + d, keys.begin() + (i * width + index(h) * d));
      }
    }
    const std::vector<float> passages = passage_penalty(keys, count, width);
    const std::vector<float> redundant = redundancy(unit_rows(keys, count, width), count, width);
    for (std::size_t i = 0; i < count; ++i)
      scores_[first + i] -= static_cast<float>(s_.alpha) * redundant[i] + passages[i];
  }

  static std::vector<float> unit_rows(std::vector<float> rows, std::size_t count, std::size_t width) {
    constexpr float kLeast = 1e-6f;
    for (std::size_t i = 0; i < count; ++i) {
      float* const row = &rows[i * width];
      const float norm = std::max(std::sqrt(dot(row, row, width)), kLeast);
      for (std::size_t j = 0; j < width; ++j) row[j] /= norm;
    }
    return rows;
  }

  std::vector<float> redundancy(const std::vector<float>& unit, std::size_t count, std::size_t width) const {
    std::vector<float> out(count), row(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t last = i;  // the last later token that is similar
      for (std::size_t j = 0; j < count; ++j) {
        row[j] = i == j ? 0 : dot(&unit[i * width], &unit[j * width], width);
        if (s_.similarity > 0 && row[j] < static_cast<float>(s_.similarity)) row[j] = 0;
        if (j > i && row[j] > 0) last = j;
      }
      row[last] = 0;
      double sum = 0;
      for (const float x : row) sum += x;
      out[i] = static_cast<float>(sum / count);
    }
    softmax(out);
    return out;
  }

  std::vector<float> passage_penalty(const std::vector<float>& keys, std::size_t count, std::size_t width) const {
    const std::size_t length = index(s_.passage), runs = (count + length - 1) / length;
    std::vector<float> means(runs * width, 0.0f), out(count, 0.0f);
    for (std::size_t i = 0; i < count; ++i) {
      const auto own = static_cast<float>(std::min(length, count - i / length * length));
      for (std::size_t j = 0; j < width; ++j) means[i / length * width + j] += keys[i * width + j] / own;
    }
    means = unit_rows(std::move(means), runs, width);
    for (std::size_t run = 0; run < runs; ++run) {
      float most = 0;
      for (std::size_t later = run + 1; later < runs; ++later) {
        const float cosine = dot(&means[run * width], &means[later * width], width);
        if (cosine >= static_cast<float>(s_.passage_similarity)) most = std::max(most, cosine);
      }
      for (std::size_t i = run * length; i < std::min(count, (run + 1) * length); ++i) out[i] = most;
    }
    return out;
  }

  const trace::Layer& layer_;
  PromptRows rows_;
  SkipKvSetting s_;
  std::vector<float> scores_, weights_;
};

class SkipKv final : public PolicyBy<SkipKvSetting> {
 public:
  using PolicyBy::PolicyBy;

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return evicting_selector(layer, std::make_unique<SkipKvRule>(layer.layer(), s_), s_.block, false);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const std::int64_t tokens = std::min(shape.start, s_.full()) + shape.length();
    if (tokens < s_.full()) return;
    const Dims m(*shape.model);
    const double n = tokens, times = shape.batch;
    const Kernel row{KernelClass::kScore, times * (m.kv_heads * n + m.q_heads) * m.row(),
                     times * m.q_heads * n * kScoreBytes, 2 * times * m.q_heads * n * m.d};
    compress(*shape.model, times, n, ops, ops.compute(Kind::kScore, "last query's weights", row, {ops.ready()}));
  }

  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths&) const override {
    return {.tokens = s_.block, .held = s_.quota.budget, .from = s_.full()};
  }

  // Attention writes its weights at the steps that compress.
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const double full = shape.sum_over([this](const Sequence& s) { return s.request.bound() >= s_.full() ? 1 : 0; });
    const double times = full / s_.buffer, n = s_.full();
    DecodeAttention work = attention_over(shape, 0);
    work.score_bytes = times * shape.model->n_q_heads * n * kScoreBytes;
    const OpId op = ops.attention(work, {ops.ready()});
    ops.done(op);
    if (full > 0) compress(*shape.model, times, n, ops, op);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, std::min(shape.tokens, s_.full())))};
  }

  // A full cache has between budget and budget + buffer tokens.
  Growth growth(const Lengths& request) const override {
    if (request.bound() < s_.full()) return {.attended = 1};
    return {.fill = s_.quota.budget + s_.buffer / 2};
  }

 private:
  // Of `times` lists of n tokens, whose weights are written.
  void compress(const config::Model& model, double times, double n, LayerOps& ops, OpId op) const {
    const Dims m(model);
    const double c = std::min(n, static_cast<double>(s_.compared));
    const Kernel largest{KernelClass::kReduce, times * m.q_heads * n * kScoreBytes, times * n * kScoreBytes,
                         5 * times * m.q_heads * n};
    op = ops.compute(Kind::kScore, "softmax, maximum over heads", largest, {op});
    op = ops.compute(Kind::kScore, "cosines of keys", Gemm{times * c, c, m.kv_heads * m.d}, {op});
    // Cosines are compared and averaged; keys are averaged by run.
    const Kernel terms{KernelClass::kReduce, times * (2 * c * c * kScoreBytes + c * m.kv_heads * m.row()),
                       times * c * kScoreBytes, times * (2 * c * c + c * m.kv_heads * m.d)};
    op = ops.compute(Kind::kScore, "redundancy", terms, {op});
    const double kept = s_.quota.budget;
    rank_and_compact(model, times, times * m.kv_heads, n, kept, kept, ops, op);
  }
};

Fields<SkipKvSetting> skipkv_fields() {
  using S = SkipKvSetting;
  return Fields<S>()
      .add(budget_parameter("tokens of a layer after a compression"), &S::quota, &Quota::budget)
      .add(whole("buffer", 128, "tokens", "tokens in addition to the budget at which the cache is compressed", 1),
           &S::buffer)
      .add(whole("compared", 64, "tokens", "last tokens before the recent ones whose keys are compared"), &S::compared)
      .add(whole("passage", 32, "tokens", "length of a passage, in place of a sentence", 1), &S::passage)
      .add(real("alpha", 0.1, "weight of the redundancy of tokens", 0, 1e3), &S::alpha)
      .add(real("similarity", 0.8, "cosine from which two keys are similar; 0: all are", 0, 1), &S::similarity)
      .add(real("passage_similarity", 0.95, "cosine from which a later passage repeats one", 0, 1),
           &S::passage_similarity)
      .add(block_parameter(), &S::block)
      .add(whole("sink", 4, "tokens", "first tokens that are never evicted, within the budget"), &S::quota,
           &Quota::sink)
      .add(whole("recent", 8, "tokens", "last tokens that are never evicted, within the budget"), &S::quota,
           &Quota::recent);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "skipkv";
  d.sentence = "Whenever a buffer is full, keeps tokens that the latest query attends to, except in repeated passages.";
  d.category = Category::kDrop;
  d.paper = "Tian et al., SkipKV, 2025 (arXiv 2512.07993)";
  d.parameters = skipkv_fields().parameters();
  d.budget_convention = "those left by a compression; a step attends to up to budget + buffer tokens";
  d.formulas = {"traffic: 2·n_kv·N·d·b per step, budget < N ≤ budget + buffer",
                "compression of n tokens: n_q·n·4 bytes of weights, 2·compared²·n_kv·d FLOP, every buffer-th step",
                "storage: 2·n_kv·(budget + buffer)·d·b"};
  d.differences = {
      "sentences need text, which a trace lacks: passages of `passage` tokens of the cache are the released code's own "
      "substitute (skipkv_enable_sentence_scoring: false), which compares the last `compared` tokens alone",
      "the released code's defaults are budget: 4672, sink: 64, recent: 512",
      "shorter answers, by vectors that steer the model, are not modelled: give a smaller decode_tokens",
      "a long prompt is compressed as soon as it has been read, by its last query; in the released code the first "
      "step does so",
      "a compression is charged in equal parts to the steps between two compressions"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const SkipKvSetting s = skipkv_fields().read(values);
    return BudgetRule{
        .tokens = s.quota.budget, .extra = s.buffer, .slack = s.buffer - 1, .counts = BudgetRule::Counts::kRetained};
  };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.whole_prompt = skipkv_fields().read(values).block > 0, .window = 1};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    const SkipKvSetting s = skipkv_fields().read(values);
    check_quota(values, s.quota);
    return std::make_unique<SkipKv>(s);
  };
  return d;
}

}  // namespace kvcast::policy::skipkv
