// ShadowKV (Sun et al., "ShadowKV: KV Cache in Shadows for High-Throughput Long-Context LLM Inference", ICML 2025,
// arXiv 2410.21465; code: bytedance/ShadowKV).
//
// Idea: keys before rotary position embedding have low rank, so that a thin factor of them stays on the GPU and values
// are stored in host memory. A step fetches the values of the selected chunks and reconstructs their keys at the same
// time.
// Prefill: K (all KV heads side by side, before RoPE) ≈ U·SV of rank r. The prompt's full chunks of c tokens before its
// last `recent` tokens have a landmark, the mean of their keys after RoPE. Of every KV head, the `outliers` chunks with
// the smallest cosine between the landmark and one of their keys stay on the GPU and are excluded from the selection.
// Selection in each step: softmax(q·landmark / √d) over the chunks, maximum over the group; the best budget / c chunks.
// Attended: those with reconstructed keys; outliers, local part and all generated tokens with exact keys. Chunks of the
// last step that are selected again are not fetched again.
// Cost: landmarks n_kv·(S/c)·d·b, top-k; then values n_kv·m·d·b over the link in pieces of c·d·b (m missing tokens),
// concurrent with the reconstruction of keys: U rows m·r·b per KV head, product 2·m·r·d; hits move within the GPU;
// attention over all.
// Storage: HBM S·r·b + n_kv·r·d·b + n_kv·(S/c)·d·b + 2·n_kv·(budget + outliers + local + generated)·d·b; DRAM
// n_kv·S·d·b.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policies/shadowkv.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/low_rank_keys.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

using Setting = ShadowSetting;

class ShadowHead {
 public:
  ShadowHead(const LayerInput& input, int kv_head, const Setting& setting)
      : layer_(input.layer()), kv_head_(kv_head), d_(index(input.info().head_dim)), s_(setting) {
    chunks_ = s_.chunks(input.info().prompt_tokens);
    if (chunks_ == 0) return;
    make_landmarks();
    std::vector<const float*> last;
    for (int g = 0; g < members(); ++g) last.push_back(layer_.window_queries(first_head() + g, 1).row(0));
    held_ = choose(last);
  }

  void prefill(HeadSelection& resident) const {
    list(layer_.info().prompt_tokens, s_.operators ? std::vector<std::int32_t>{} : held_, resident.attended);
  }

  void step(int t, HeadSelection& out) {
    const std::int64_t tokens = layer_.info().prompt_tokens + t + 1;
    if (!competing_.empty()) {
      std::vector<const float*> queries;
      for (int g = 0; g < members(); ++g) queries.push_back(layer_.decode_query(first_head() + g, t));
      move(choose(queries), tokens, out);
    }
    list(tokens, held_, out.attended);
    step_ = t;
  }

  // Attention of the last step, with reconstructed keys for tokens that are neither in an outlier chunk nor local.
  void attend(int member, const MatrixView& rebuilt, std::span<float> out) const {
    KVCAST_CHECK(step_ >= 0);
    const float* const query = layer_.decode_query(first_head() + member, step_);
    const float* const exact = layer_.decode_scores(first_head() + member).row(index(step_));
    std::vector<std::int32_t> tokens;
    list(layer_.info().prompt_tokens + step_ + 1, held_, tokens);
    std::vector<float> weights;
    for (const std::int32_t i : tokens) {
      const bool is_rebuilt = std::binary_search(held_.begin(), held_.end(), i / s_.page);
      weights.push_back(is_rebuilt ? dot(query, rebuilt.row(index(i)), d_) : exact[i]);
    }
    softmax(weights, 1.0f / std::sqrt(static_cast<float>(d_)));
    std::fill(out.begin(), out.end(), 0.0f);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const float* const value = layer_.values(kv_head_).row(index(tokens[i]));
      for (std::size_t j = 0; j < d_; ++j) out[j] += weights[i] * value[j];
    }
  }

 private:
  int members() const { return layer_.info().group(); }
  int first_head() const { return kv_head_ * members(); }

  // Computes the landmarks of all chunks; outliers are the chunks whose landmark represents one of their keys worst.
  void make_landmarks() {
    const MatrixView keys = layer_.keys(kv_head_);
    std::vector<float> all(index(chunks_) * d_), dissimilarity;
    for (std::int64_t c = 0; c < chunks_; ++c) {
      float* const mean = all.data() + index(c) * d_;
      for (std::int64_t i = c * s_.page; i < (c + 1) * s_.page; ++i) {
        for (std::size_t j = 0; j < d_; ++j) mean[j] += keys.row(index(i))[j];
      }
      for (std::size_t j = 0; j < d_; ++j) mean[j] /= static_cast<float>(s_.page);
      float least = 1;
      for (std::int64_t i = c * s_.page; i < (c + 1) * s_.page; ++i) {
        const float* const key = keys.row(index(i));
        const float norms = std::sqrt(dot(key, key, d_) * dot(mean, mean, d_));
        least = std::min(least, norms > 0 ? dot(key, mean, d_) / norms : 0.0f);
      }
      dissimilarity.push_back(-least);
    }
    ranking_.select(dissimilarity, index(s_.outlier_chunks(layer_.info().prompt_tokens)), outliers_);
    for (std::int32_t c = 0; c < chunks_; ++c) {
      if (std::binary_search(outliers_.begin(), outliers_.end(), c)) continue;
      competing_.push_back(c);
      const float* const mean = all.data() + index(c) * d_;
      landmarks_.insert(landmarks_.end(), mean, mean + d_);
    }
  }

  // Selects chunks, ascending.
  std::vector<std::int32_t> choose(std::span<const float* const> queries) {
    const std::size_t n = competing_.size();
    std::vector<std::vector<float>> rows(queries.size(), std::vector<float>(n));
    for (std::size_t g = 0; g < queries.size(); ++g) {
      multiply_transposed({queries[g], 1, d_, d_}, {landmarks_.data(), n, d_, d_}, rows[g].data(), n);
    }
    const std::vector<std::span<float>> views(rows.begin(), rows.end());
    std::vector<float> scores(n);
    reduce_group(s_.group, views, 1.0f / std::sqrt(static_cast<float>(d_)), scores);
    std::vector<std::int32_t> chosen;
    ranking_.select(scores, index(s_.chosen(layer_.info().prompt_tokens)), chosen);
    for (std::int32_t& c : chosen) c = competing_[index(c)];
    return chosen;
  }

  void move(std::vector<std::int32_t> chosen, std::int64_t tokens, HeadSelection& out) {
    std::vector<std::int32_t> come, go;
    if (s_.operators) {  // chunks fetched in a step are not reused in the next one
      come = go = chosen;
    } else {
      std::set_difference(chosen.begin(), chosen.end(), held_.begin(), held_.end(), std::back_inserter(come));
      std::set_difference(held_.begin(), held_.end(), chosen.begin(), chosen.end(), std::back_inserter(go));
    }
    append_page_tokens(come, s_.page, 0, tokens, out.fetched);
    append_page_tokens(go, s_.page, 0, tokens, out.evicted);
    out.counts.scored = competing_.size();
    out.counts.candidates = static_cast<std::int64_t>(chosen.size()) * s_.page;
    out.counts.fetched_runs = come.size();
    held_ = std::move(chosen);
  }

  // Lists outliers and selected chunks in order, then everything from the local part on.
  void list(std::int64_t tokens, const std::vector<std::int32_t>& chosen, std::vector<std::int32_t>& out) const {
    std::vector<std::int32_t> both;
    std::merge(outliers_.begin(), outliers_.end(), chosen.begin(), chosen.end(), std::back_inserter(both));
    append_page_tokens(both, s_.page, 0, tokens, out);
    append_range(chunks_ * s_.page, tokens, out);
  }

  const trace::Layer& layer_;
  int kv_head_;
  std::size_t d_;
  Setting s_;
  std::int64_t chunks_ = 0;
  int step_ = -1;  // the last step
  Ranking ranking_;
  std::vector<std::int32_t> outliers_, competing_, held_;  // chunks, ascending; held_: those of the last selection
  std::vector<float> landmarks_;                           // of the competing chunks
};

class ShadowSelector final : public EachKvHead<ShadowHead, Setting> {
 public:
  ShadowSelector(const LayerInput& layer, const Setting& setting)
      : EachKvHead(layer, setting),
        layer_(layer.layer()),
        rank_(setting.rank),
        rebuilt_tokens_(setting.chunks(layer.info().prompt_tokens) * setting.page) {}

  // Keys are reconstructed, which takes most of the time, only if outputs are requested: no selection depends on them.
  std::span<const float> output(int q_head) const override {
    if (rebuilt_tokens_ == 0) return {};
    if (!rebuilt_) rebuilt_.emplace(layer_, rebuilt_tokens_, rank_);
    const int group = layer_.info().group(), kv_head = q_head / group;
    const auto d = index(layer_.info().head_dim);
    outputs_.resize(index(layer_.info().n_q_heads) * d);
    const std::span out = std::span(outputs_).subspan(index(q_head) * d, d);
    heads_[index(kv_head)]->attend(q_head % group, rebuilt_->head(kv_head), out);
    return out;
  }

 private:
  const trace::Layer& layer_;
  std::int64_t rank_, rebuilt_tokens_;
  mutable std::optional<LowRankKeys> rebuilt_;
  mutable std::vector<float> outputs_;
};

class ShadowKv final : public SelectsBy<ShadowSelector, Setting> {
 public:
  using SelectsBy::SelectsBy;

  bool covers(const Lengths& request) const override { return s_.budget >= request.bound(); }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    if (s_.chunks(shape.prompt_tokens) == 0) return;
    const Dims m(*shape.model);
    const double tokens = shape.prompt_tokens;
    factorise_keys(s_, m, shape.batch, tokens, 1, ops, ops.ready());
    const double bytes = shape.batch * m.kv_heads * tokens * m.row();
    const double chunks = s_.chunks(shape.prompt_tokens);
    // FLOP: means, then cosines.
    const Kernel landmarks{KernelClass::kReduce, 2 * bytes, shape.batch * m.kv_heads * chunks * m.row(),
                           4 * bytes / m.element};
    const OpId op = ops.compute(Kind::kIndex, "landmarks", landmarks, {ops.ready()});
    const double outliers = s_.outlier_chunks(shape.prompt_tokens);
    if (outliers > 0) {
      ops.compute(Kind::kTopK, "outlier chunks", TopK{shape.batch * m.kv_heads, chunks, outliers, kScoreBytes}, {op});
    }
    prompt_to_host(s_, shape, ops);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double scored = shape.sum(&HeadCounts::scored);
    OpId op = ops.ready();
    if (scored > 0) {
      if (s_.refactorised > 0) refactorise(shape, m, ops);
      op = bring_chosen(s_, shape, ops, choose_chunks(s_, shape, ops));
    }
    // Operators leave the selected tokens contiguous, kernels in chunks.
    const double unit = scored > 0 && !s_.operators ? s_.page * m.row() : 0;
    ops.done(ops.attention(attention_over(shape, unit), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    if (s_.chunks(prompt) == 0) {
      return {in_hbm(Owner::kKvCache, kv_bytes(shape, shape.tokens))};
    }
    const double layers = shape.batch * shape.model->layers, heads = layers * m.kv_heads;
    const double tokens = factorised(prompt, shape.tokens), rank = s_.rank_of(m);
    const double moved = tokens - (s_.chunks(prompt) * s_.page);
    const double held = (s_.chosen(prompt) * s_.page + s_.exact(prompt) + shape.tokens - prompt) - moved;
    // At the prompt's end the index still waits elsewhere.
    const double there = s_.staged && shape.tokens <= prompt ? 0 : 1;
    const double factors = layers * tokens * rank * m.element + heads * rank * m.row();
    const double landmarks = heads * s_.landmarks(prompt) * (m.row() + kIndexBytes);
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, held)), in_hbm(Owner::kLowRankKeys, there * factors),
            in_hbm(Owner::kLandmarks, there * landmarks),
            in_dram(Owner::kHostValues, heads * (prompt + moved) * m.row())};
  }

  // Generated tokens are always read, up to those that were factorised; chunks are those of the prompt.
  Growth growth(const Lengths&) const override { return {.attended = s_.refactorised > 0 ? 0.0 : 1.0}; }

 private:
  // Tokens with factorised keys at a context of `tokens`: the prompt's chunks, and whole rounds of generated tokens.
  double factorised(std::int64_t prompt, std::int64_t tokens) const {
    const std::int64_t rounds = s_.refactorised > 0 ? (tokens - prompt) / s_.refactorised : 0;
    return s_.chunks(prompt) * s_.page + rounds * s_.refactorised;
  }

  // A step's share of periodic work: all keys are factorised again, and the new ones' values are copied to the host.
  void refactorise(const DecodeLayer& shape, const Dims& m, LayerOps& ops) const {
    const double share = 1 / static_cast<double>(s_.refactorised);
    factorise_keys(s_, m, shape.batch, shape.mean_tokens(), share, ops, ops.ready());
    Copy values;
    values.direction = Direction::kDeviceToHost;
    values.runs = share * shape.batch;
    values.run_bytes = m.kv_heads * m.row() / share;
    values.issuer = Lane::kBackupThread;
    ops.copy(Lane::kBackup, "new values to host", values, {ops.ready()});
  }
};

Fields<Setting> shadowkv_fields() {
  using S = Setting;
  return Fields<S>()
      .add(budget_parameter("tokens of selected chunks per KV head"), &S::budget)
      .add(page_parameter(8), &S::page)
      .add(whole("recent", 32, "tokens",
                 "last prompt tokens that stay on the GPU, in addition to those of an incomplete chunk"),
           &S::recent)
      .add(whole("outliers", 48, "chunks",
                 "chunks per KV head whose mean key represents them worst; they stay on the GPU"),
           &S::outliers)
      .add(whole("rank", 160, "", "rank of the keys before RoPE, all KV heads side by side", 1, 1e6), &S::rank)
      .add(choice("runtime", {"kernels", "operators"},
                  "the released class with custom kernels, or the one of PyTorch operators, which keeps no chunk "
                  "from step to step and gathers values on the CPU"),
           &S::operators)
      .add(choice("factorisation", {"moments", "library"},
                  "factorisation of the keys: by eigenvectors of their second moments, or by a library's SVD, as "
                  "released"),
           &S::library)
      .add(choice("prompt_index", {"gpu", "host"},
                  "where factors and landmarks lie while prompts are read: on the GPU, or in pageable memory of "
                  "the host until all have been read, as released, which leaves the prompts more room"),
           &S::staged)
      .add(whole("refactorised_every", 0, "tokens",
                 "generated tokens after which all keys are factorised again, charged at its mean cost per step; "
                 "0: never"),
           &S::refactorised)
      .add(group_parameter({"max_weights", "mean_weights", "sum_weights", "max_scores", "mean_scores", "sum_scores"}),
           &S::group);
}

}  // namespace

namespace shadowkv {

Descriptor describe() {
  Descriptor d;
  d.name = "shadowkv";
  d.sentence =
      "Keeps a low-rank factor of the keys on the GPU and the values in host memory; reconstructs keys and fetches "
      "values of the chunks that each step selects.";
  d.category = Category::kHostRetrieval;
  d.no_ends = "outliers, wherever they are, take the place of first tokens";
  d.own_reuse = {config::SchedulerRules::Reuse::kNone, "keys stay as factors of low rank, of which no prefix is exact"};
  d.paper = "Sun et al., ShadowKV, ICML 2025 (arXiv 2410.21465)";
  d.parameters = shadowkv_fields().parameters();
  d.make = [](const ParameterValues& values) {
    const auto setting = shadowkv_fields().read(values);
    check_page(values.where("budget"), setting.budget, setting.page);
    return full_when_covered(std::make_unique<ShadowKv>(setting));
  };
  d.recall_page = [](const ParameterValues& values) { return values.integer("page"); };
  d.own_budget_counts = BudgetRule::Counts::kSelected;
  d.budget_convention =
      "tokens of the selected chunks, in addition to the outlier chunks, the local part of the prompt and "
      "all generated tokens";
  d.formulas = {
      "traffic: n_kv·(S/c)·d·b + 2·n_kv·(budget + outliers + local + generated)·d·b per step; m missing tokens per KV "
      "head: n_kv·m·d·b from the host, n_kv·m·r·b of the factor",
      "storage: HBM S·r·b + n_kv·r·d·b + n_kv·(S/c)·d·b + 2·n_kv·(budget + outliers + local + generated)·d·b; DRAM "
      "n_kv·S·d·b"};
  d.differences = {
      "keys before RoPE are computed by rotating the trace's keys back, with the frequencies of its model if "
      "configs/models has it, otherwise with rope_theta alone",
      "48 outlier chunks at any budget, as in the released class for accuracy; the class for timings keeps 24 per 1024 "
      "tokens of budget: outliers",
      "the number of chunks is not rounded to a multiple of 8",
      "prompt_index: host: the copy back to the GPU between the first token and the second takes no time",
      "the released code divides scores by √128 for all head dimensions",
      "tokens factorised later are not candidates: the replay selects among the prompt's chunks",
      "a budget that covers all tokens keeps the uncompressed cache on the GPU"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const Setting s = shadowkv_fields().read(values);
    const std::int64_t prompt = lengths.prompt_tokens;
    const bool all = s.budget >= lengths.bound();
    return BudgetRule{.tokens = all ? 0 : s.chosen(prompt) * s.page,
                      .extra = all ? prompt : s.exact(prompt),
                      .generated_on_top = true,
                      .counts = BudgetRule::Counts::kSelected};
  };
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.coupled = true}; };
  return d;
}

}  // namespace shadowkv

}  // namespace kvcast::policy
