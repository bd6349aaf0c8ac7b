// D2O (Wan et al., "D2O: Dynamic Discriminative Operations for Efficient Long-Context Inference of Large Language
// Models", ICLR 2025, arXiv 2406.13035), as in its released code.
//
// Idea: evict like H2O, but merge evicted pairs into their most similar neighbours, and give less to layers with even
// attention.
// Selection: F_l = mean over heads of the variance over tokens of the prompt's column sums, scaled to [0, 1] over the
// heads of the layer; layer budget = clamp(layers·budget·softmax_l(−F), 1 % of the tokens, all). The first decode step
// attends to everything. Then the last ⌊share·budget⌋ tokens stay, and of the others the ⌊(1 − share)·budget⌋ best by
// total weight, including the first `sink`; share is recent_share, and budget the layer's. Later steps attend to one
// more token, add their weights and evict one.
// Merge: u = largest cosine of an evicted key to a kept one, j = its position. A slot (the i-th evicted token of every
// head) is merged if the mean of u over heads reaches tau: the mean over slots and heads at first, later alpha·tau +
// beta·that mean. K_j becomes the mean of itself and all u·K_e merged into it, and V_j likewise. Later attention, and
// output_error, use merged pairs.
// `block`: the prompt is read in blocks, with an eviction and a merge after each (layers: uniform).
// Cost: H2O's, and cosines: 2·n_kv·E·N·d FLOP for E evicted and N kept tokens, with a read of all kept keys at each
// step.
// Storage: 2·Σ_l N_l·n_kv·d·b, and totals.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/profile.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/heavy_hitters.hpp"
#include "policy_parts/merging_cache.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::d2o {
namespace {

struct D2oSetting {
  std::int64_t budget = 0, sink = 0, block = 0;
  double recent_share = 0.5, alpha = 0.5, beta = 0.5;
  bool adaptive = true, exempt = false, materialise = false, merge = true;
};

bool exempt(const D2oSetting& s, int layer, int layers) { return s.exempt && (layer < 2 || layer == layers - 1); }

// Column sums of a layer's prompt, and the layer's statistic F.
struct Surveyed {
  std::shared_ptr<const HeavyHitters> totals;
  double spread = 0;
};

Surveyed survey_layer(const LayerInput& input) {
  const trace::TraceInfo& info = input.info();
  require_prompt_queries(info, 0, "d2o sums the weights of all prompt queries");
  auto totals = std::make_shared<HeavyHitters>(input.layer(), Group::kMeanWeights);
  totals->add_prompt(input);
  std::vector<double> variances;
  for (std::size_t q = 0; q < index(info.n_q_heads); ++q) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < info.prompt_tokens; ++i) sum += totals->total(q, i);
    const double mean = sum / static_cast<double>(info.prompt_tokens);
    for (std::int64_t i = 0; i < info.prompt_tokens; ++i) squares += std::pow(totals->total(q, i) - mean, 2);
    variances.push_back(squares / static_cast<double>(info.prompt_tokens));
  }
  const auto [least, most] = std::minmax_element(variances.begin(), variances.end());
  double spread = 0;
  for (const double v : variances) spread += *most > *least ? (v - *least) / (*most - *least) : 0;
  return {std::move(totals), spread / static_cast<double>(variances.size())};
}

class D2oRule final : public EvictionRule {
 public:
  // budget: that of the layer, which need not be an integer. Without totals nothing is evicted.
  D2oRule(const LayerInput& input, const D2oSetting& setting, double budget, const HeavyHitters* prompt)
      : layer_(input.layer()), s_(setting) {
    if (prompt != nullptr) totals_ = std::make_unique<HeavyHitters>(*prompt);
    // Rounds down, with a tolerance: 0.3 · 10 is 3, although the floating-point product may be smaller.
    const auto part = [&](double share) { return static_cast<std::int64_t>(share * budget + 1e-9); };
    const std::int64_t recent = part(s_.recent_share);
    budget_ = std::max<std::int64_t>(1, part(1 - s_.recent_share) + recent);
    quota_ = {budget_, std::min(s_.sink, budget_ - recent), recent};
  }

  // If the prompt is read in blocks, its queries see the pairs merged before them; otherwise the first step evicts.
  void after_block(std::int64_t first, std::int64_t end, std::vector<Held>& held) override {
    if (s_.block == 0 || totals_ == nullptr) return;
    for (std::size_t h = 0; h < held.size(); ++h) {
      if (caches_.size() == h) caches_.emplace_back(layer_, static_cast<int>(h), Held{});
      const std::size_t before = held[h].size() - index(end - first);
      for (std::size_t i = before; i < held[h].size(); ++i) caches_[h].append(layer_, static_cast<int>(h), held[h][i]);
      weigh_block(h, first, end, before, held[h]);
    }
    if (static_cast<std::int64_t>(held[0].size()) > budget_) evict(held);
  }

  void after_step(int t, std::vector<Held>& held) override {
    if (totals_ == nullptr) return;
    merged_ = !caches_.empty();
    if (merged_) {
      attend(t, held);
    } else {
      totals_->add_step(t, held);
    }
    if (static_cast<std::int64_t>(held[0].size()) <= budget_) return;
    if (caches_.empty()) {
      for (std::size_t h = 0; h < held.size(); ++h) caches_.emplace_back(layer_, static_cast<int>(h), held[h]);
    }
    evict(held);
  }

  std::span<const float> output(int q_head) const override {
    if (!merged_) return {};
    return outputs_[index(q_head)];
  }

 private:
  // Adds the weights of a block's queries over the pairs before them to the totals.
  void weigh_block(std::size_t h, std::int64_t first, std::int64_t end, std::size_t before, const Held& held) {
    const trace::TraceInfo& info = layer_.info();
    for (int g = 0; g < info.group(); ++g) {
      const std::size_t q_head = h * index(info.group()) + index(g);
      const MatrixView queries = layer_.queries(static_cast<int>(q_head));
      for (std::int64_t i = first; i < end; ++i) {
        const float* const query = queries.row(index(info.prompt_queries() - info.prompt_tokens + i));
        caches_[h].weigh(query, before + index(i - first) + 1, weights_);
        totals_->add(q_head, held, weights_);
      }
    }
  }

  void evict(std::vector<Held>& held) {
    std::vector<std::vector<std::int32_t>> stay;
    for (std::size_t h = 0; h < held.size(); ++h) {
      totals_->scores(h, held[h], scores_);
      stay.push_back(keep_best(held[h], scores_, quota_));
    }
    merge(stay);
  }

  // Attends to merged pairs and the current one, and adds the weights to the totals.
  void attend(int t, const std::vector<Held>& held) {
    const int members = layer_.info().group();
    outputs_.resize(index(layer_.info().n_q_heads));
    for (std::size_t h = 0; h < held.size(); ++h) {
      caches_[h].append(layer_, static_cast<int>(h), held[h].back());
      for (int g = 0; g < members; ++g) {
        const int q_head = static_cast<int>(h) * members + g;
        caches_[h].attend(layer_.decode_query(q_head, t), weights_, outputs_[index(q_head)]);
        totals_->add(index(q_head), held[h], weights_);
      }
    }
  }

  void merge(const std::vector<std::vector<std::int32_t>>& stay) {
    std::vector<Departures> gone;
    for (std::size_t h = 0; h < caches_.size(); ++h) gone.push_back(caches_[h].shrink(stay[h]));
    const std::size_t slots = gone[0].similarity.size();
    std::vector<double> means(slots, 0.0);
    for (const Departures& head : gone) {
      for (std::size_t i = 0; i < slots; ++i) means[i] += head.similarity[i] / static_cast<double>(gone.size());
    }
    const double mean = std::accumulate(means.begin(), means.end(), 0.0) / slots;
    tau_ = has_tau_ ? s_.alpha * tau_ + s_.beta * mean : mean;
    has_tau_ = true;
    if (!s_.merge) return;
    std::vector<bool> merges;
    for (const double m : means) merges.push_back(m >= tau_);
    for (std::size_t h = 0; h < caches_.size(); ++h) caches_[h].merge(gone[h], merges);
  }

  const trace::Layer& layer_;
  D2oSetting s_;
  std::int64_t budget_ = 1;  // tokens that are kept
  Quota quota_;
  std::unique_ptr<HeavyHitters> totals_;
  std::vector<MergingCache> caches_;
  std::vector<std::vector<float>> outputs_;
  std::vector<float> scores_, weights_;
  double tau_ = 0;
  bool has_tau_ = false, merged_ = false;
};

class D2o final : public PolicyBy<D2oSetting> {
 public:
  using PolicyBy::PolicyBy;

  bool covers(const Lengths& request) const override { return s_.budget >= request.bound(); }

  bool surveys(const Lengths&) const override { return s_.block == 0; }
  void survey(std::span<const LayerInput* const> layers, const Lengths&) override {
    surveyed_.clear();
    if (s_.block > 0) return;
    for (const LayerInput* layer : layers) surveyed_[layer->layer().id()] = survey_layer(*layer);
  }

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    const trace::TraceInfo& info = layer.info();
    const int id = layer.layer().id();
    std::unique_ptr<EvictionRule> rule;
    if (exempt(s_, id, info.n_layers)) {
      rule = std::make_unique<D2oRule>(layer, s_, 1, nullptr);
    } else if (s_.block > 0) {
      require_prompt_queries(info, 0, "d2o sums the weights of all prompt queries");
      const HeavyHitters none(layer.layer(), Group::kMeanWeights);
      rule = std::make_unique<D2oRule>(layer, s_, static_cast<double>(s_.budget), &none);
    } else {
      std::map<int, Surveyed> known = surveyed_;
      if (!known.contains(id)) known[id] = survey_layer(layer);
      rule = std::make_unique<D2oRule>(layer, s_, budget(known, id, info), known.at(id).totals.get());
    }
    return evicting_selector(layer, std::move(rule), s_.block, false);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    if (exempt(s_, shape.layer, shape.model->layers)) return;
    sum_prompt_columns(shape, std::min(shape.start, s_.budget), s_.materialise, ops);
    const Dims m(*shape.model);
    const double kept = s_.budget;
    // A prompt that is read at once is compressed by the first step.
    const double evicted = s_.block > 0 ? tokens_to_rank(shape, s_.budget) - kept : (shape.prompt_tokens + 1) - kept;
    if (evicted <= 0) return;
    const double lists = shape.batch * m.kv_heads;
    const Kernel similarity{KernelClass::kScore, lists * (evicted + kept) * m.row(), lists * evicted * kScoreBytes,
                            2 * lists * evicted * kept * m.d};
    OpId op = ops.compute(Kind::kScore, "similarity of evicted keys", similarity, {ops.ready()});
    const Kernel merging{.cls = KernelClass::kGather,
                         .read_bytes = 2 * lists * evicted * m.row(),
                         .write_bytes = 2 * lists * kept * m.row(),
                         .unit_bytes = m.row()};
    op = ops.compute(Kind::kIndex, "merge", merging, {op});
    rank_and_compact(*shape.model, lists, evicted + kept, s_.budget, ops, op);
  }

  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths&) const override {
    return {s_.block, s_.budget, exempt(s_, layer, model.layers) ? 1.0 : 0.0};
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    if (exempt(s_, shape.layer, shape.model->layers))
      return ops.done(ops.attention(attention_over(shape, 0), {ops.ready()}));
    attend_and_evict(shape, true, shape.model->n_kv_heads, ops);
    const Dims m(*shape.model);
    const double held = shape.sum(&HeadCounts::attended), evicted = shape.sum(&HeadCounts::evicted);
    if (evicted <= 0) return;
    const Kernel similarity{KernelClass::kScore, held * m.row(), evicted * kScoreBytes, 2 * held * m.d};
    const OpId op = ops.compute(Kind::kScore, "similarity of evicted keys", similarity, {ops.ready()});
    const double moved = 2 * evicted * m.row();
    ops.compute(
        Kind::kIndex, "merge",
        Kernel{.cls = KernelClass::kGather, .read_bytes = 2 * moved, .write_bytes = moved, .unit_bytes = m.row()},
        {op});
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const int layers = shape.model->layers;
    double spared = 0;
    for (int l = 0; l < layers; ++l) spared += exempt(s_, l, layers) ? 1.0 / layers : 0;
    const double tokens = shape.tokens;
    const double held = std::min(tokens, static_cast<double>(s_.budget + 1));
    const double mean = spared * tokens + (1 - spared) * held;
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, mean)),
            in_hbm(Owner::kAttentionTotals,
                   shape.batch * layers * (1 - spared) * shape.model->n_kv_heads * held * kScoreBytes)};
  }

  Growth growth(const Lengths&) const override { return {.fill = s_.budget}; }

 private:
  double budget(const std::map<int, Surveyed>& known, int layer, const trace::TraceInfo& info) const {
    if (!s_.adaptive) return s_.budget;
    Profile shares;  // for its rule of the nearest layer
    shares.n_layers = info.n_layers;
    for (const auto& [id, one] : known) shares.layer_errors[id] = std::exp(-one.spread);
    const double tokens = info.prompt_tokens + 1;
    const double share = shares.layer_shares()[index(layer)] * info.n_layers * static_cast<double>(s_.budget);
    return std::clamp(share, 0.01 * tokens, tokens);
  }

  std::map<int, Surveyed> surveyed_;
};

Fields<D2oSetting> d2o_fields() {
  using S = D2oSetting;
  return Fields<S>()
      .add(budget_parameter("tokens per KV head kept between steps, on average over layers"), &S::budget)
      .add(whole("sink", 4, "tokens", "first tokens that are never evicted, within the budget"), &S::sink)
      .add(real("recent_share", 0.5, "share of a layer's budget for its last tokens"), &S::recent_share)
      .add(real("alpha", 0.5, "weight of the old merge threshold at each eviction"), &S::alpha)
      .add(real("beta", 0.5, "weight of the new mean similarity in the threshold"), &S::beta)
      .add(flag("merge", true, "merge evicted tokens; false: drop them"), &S::merge)
      .add(choice("layers", {"adaptive", "uniform"},
                  "distribution of the budget over layers: by the evenness of their attention, or equal"),
           &S::adaptive, {true, false})
      .add(choice("exempt", {"none", "released"},
                  "uncompressed layers: none, or the first two and the last (released code)"),
           &S::exempt)
      .add(block_parameter(), &S::block)
      .add(column_sums_parameter(), &S::materialise);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "d2o";
  d.sentence = "H2O that merges evicted tokens into the most similar kept ones, with budgets by layer.";
  d.category = Category::kDrop;
  d.no_ends = "recent_share sets the last tokens";
  d.paper = "Wan et al., D2O, ICLR 2025 (arXiv 2406.13035)";
  d.parameters = d2o_fields().parameters();
  d.budget_convention =
      "on average over layers: the first step attends to everything, later ones to one token more than the "
      "layer keeps, including the current one";
  d.formulas = {"traffic: 2·n_kv·(N_l + 1)·d·b per step, n_kv·(N_l + 1)·d·b for cosines, weights and totals as h2o",
                "prompt: n_q·S·(S + 1)·d FLOP for the column sums, 2·n_kv·E·N·d for the first merge",
                "storage: 2·n_kv·Σ_l (N_l + 1)·d·b + 4·n_kv·Σ_l (N_l + 1)"};
  d.differences = {
      "as in the released code: unnormalised cosines as merge weights, threshold 0.5/0.5, half of the budget recent; "
      "the paper has exponential weights, 0.3/0.7, and a quarter",
      "the code works on copies of the keys for every query head; here scores are averaged over the group, and pairs "
      "are merged once per KV head",
      "with block, which requires layers: uniform (other layer budgets depend on sums over the whole prompt), each "
      "block is followed by an eviction, and later queries of the prompt see merged pairs"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    BudgetRule rule = evicts_always(values.integer("budget"));
    rule.over = BudgetRule::Over::kModel;
    return rule;
  };
  d.uncompressed_layers = {"exempt"};
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.whole_prompt = true}; };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    const D2oSetting setting = d2o_fields().read(values);
    if (setting.block > 0 && setting.adaptive) {
      throw UserError(values.where("block"),
                      "block requires layers: uniform, because other layer budgets depend on the whole prompt");
    }
    return full_when_covered(std::make_unique<D2o>(setting));
  };
  return d;
}

}  // namespace kvcast::policy::d2o
