// The eviction rule of one layer: scores of the window's queries over the tokens before the window, the heads' budgets,
// and the best tokens of each head. Window scores of a prompt that is read at once are shared with other policies
// (LayerInput).
#include "policy_parts/prompt_eviction.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy_parts/ranking.hpp"

namespace kvcast::policy {

std::vector<int> ranking_heads(const PromptEviction& s, int layer) {
  const std::vector<double>& scores = s.profile->head_scores(s.ranked_by, layer);
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[index(a)] > scores[index(b)]; });
  std::size_t n = std::min(order.size(), index(s.retrieval_heads));
  if (s.retrieval_at_least) {
    double sum = 0;
    for (int l = 0; l < s.profile->n_layers; ++l) {
      for (const double x : s.profile->head_scores(s.ranked_by, l)) sum += x;
    }
    while (n < order.size() && scores[index(order[n])] > *s.retrieval_at_least * sum) ++n;
  }
  order.resize(n);
  return order;
}

namespace {

// HeadKV's budgets of one layer's selecting heads, without the window.
Budgets importance_of_layer(const PromptEviction& s, int layer, bool per_query_head) {
  const Profile& p = *s.profile;
  std::vector<double> importance;
  double sum = 0;
  for (int l = 0; l < p.n_layers; ++l) {
    for (const double x : p.head_scores("retrieval", l))
      sum += importance.emplace_back(std::pow(x, s.importance_power));
  }
  for (double& x : importance) x /= sum;
  const std::vector<double> all =
      importance_budgets(importance, s.window_in_base ? s.budget : s.budget - s.window, s.pool_beta);
  const int members = per_query_head ? 1 : p.n_q_heads / p.n_kv_heads;
  Budgets out;
  for (int h = 0; h < p.n_q_heads; h += members) {
    const auto first = all.begin() + layer * p.n_q_heads + h;
    out.push_back(static_cast<std::int64_t>(std::nearbyint(std::accumulate(first, first + members, 0.0) / members)));
  }
  return out;
}

class WindowRule final : public EvictionRule {
 public:
  WindowRule(const PromptEviction& setting, const LayerInput& input, std::int64_t budget)
      : s_(setting), input_(input), layer_(input.layer()), rows_(layer_), budget_(budget) {
    const trace::TraceInfo& info = input.info();
    if (s_.profile) s_.profile->check_shape(info);
    per_head_ = s_.group == Group::kPerHead;
    if (s_.heads == HeadBudgets::kImportance) caps_ = importance_of_layer(s_, layer_.id(), per_head_);
    if (s_.scores == TokenScores::kRetrievalHeads) heads_ = ranking_heads(s_, layer_.id());
    if (keeps_prompt()) return;
    // A head with a small budget may evict after the first block.
    const std::vector<std::int64_t> ends = s_.ends(info);
    whole_ = ends.size() == 1;
    require_prompt_queries(
        info, std::max<std::int64_t>(0, ends[0] - s_.window),
        fmt::format("a window of {} last queries of the prompt (or of each block and turn) ranks its tokens",
                    s_.window));
  }

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    if (keeps_prompt() || !over_budget(held)) return;
    const bool own = s_.scores != TokenScores::kRetrievalHeads;
    if (own || s_.heads == HeadBudgets::kAdaptive) score_by_group(end, held);
    Budgets caps = caps_;
    if (s_.heads == HeadBudgets::kUniform) caps.assign(held.size(), budget_ - s_.window);
    if (s_.heads == HeadBudgets::kAdaptive) {
      Adaptive adaptive = s_.adaptive;
      adaptive.base = budget_ - s_.window;
      caps = adaptive_budgets(adaptive, scores_);
    }
    if (!own) score_by_retrieval_heads(end, held);
    evict(caps, held);
  }

  // The step's own weights rank the tokens before the last `window`.
  void after_step(int t, std::vector<Held>& held) override {
    const Quota quota{.budget = budget_, .grows = s_.grows, .prompt = s_.prompt};
    const std::int64_t budget = quota.after(input_.info().prompt_tokens + t + 1).budget;
    if (!s_.decode_eviction || static_cast<std::int64_t>(held[0].size()) <= budget) return;
    WindowScores rows{s_.window, std::vector<std::vector<float>>(index(input_.info().n_q_heads))};
    for (std::size_t q = 0; q < rows.q_heads.size(); ++q) {
      const Held& list = held[list_of(static_cast<int>(q))];
      step_weights(layer_, static_cast<int>(q), t, list, rows.q_heads[q]);
      rows.q_heads[q].resize(list.size() - index(s_.window));
    }
    reduce_and_pool(rows, held.size());
    evict(Budgets(held.size(), budget - s_.window), held);
  }

 private:
  bool keeps_prompt() const {
    return input_.info().prompt_tokens <= (s_.layers == LayerBudgets::kErrors ? budget_ : s_.budget);
  }
  int members() const { return per_head_ ? 1 : input_.info().group(); }
  std::size_t list_of(int q_head) const { return index(q_head / members()); }

  bool over_budget(const std::vector<Held>& held) const {
    for (std::size_t h = 0; h < held.size(); ++h) {
      const std::int64_t cap = s_.heads == HeadBudgets::kImportance ? caps_[h] + s_.window : budget_;
      if (static_cast<std::int64_t>(held[h].size()) > cap) return true;
    }
    return false;
  }

  void reduce_and_pool(const WindowScores& rows, std::size_t lists) {
    scores_.resize(lists);
    for (std::size_t h = 0; h < lists; ++h) {
      reduce_window(rows, static_cast<int>(h), members(), s_.group, reduced_);
      pool(s_.pool, s_.pool_kernel, reduced_, scores_[h]);
    }
  }

  void score_by_group(std::int64_t end, const std::vector<Held>& held) {
    if (s_.scores != TokenScores::kVariance && whole_) {
      reduce_and_pool(*input_.window_scores(s_.window), held.size());
      return;
    }
    WindowScores rows{s_.window, {}};
    if (s_.scores == TokenScores::kVariance && whole_) {
      for (const WindowMoments& moments : *input_.window_moments(s_.window)) rows.q_heads.push_back(spread(moments));
      return reduce_and_pool(rows, held.size());
    }
    for (int q = 0; q < input_.info().n_q_heads; ++q) {
      const bool all = s_.scores == TokenScores::kVariance;
      const Held& list = held[list_of(q)];
      if (q % members() == 0) rows_.hold(q / input_.info().group(), list);
      const WindowMoments moments =
          measure_window(rows_, q, end, s_.window, list.size(), all ? Moments::kAll : Moments::kSums);
      rows.q_heads.push_back(all ? spread(moments) : std::vector<float>(moments.sum.begin(), moments.sum.end()));
    }
    reduce_and_pool(rows, held.size());
  }

  // CAKE's scores of one query head: mean and variance.
  std::vector<float> spread(const WindowMoments& moments) const {
    std::vector<float> row(moments.sum.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(moments.sum[i] / s_.window + s_.gamma * moments.variance(i, s_.window));
    }
    return row;
  }

  // All lists are equal: a prompt in blocks requires uniform head budgets (evict_after_prompt rejects others).
  void score_by_retrieval_heads(std::int64_t end, const std::vector<Held>& held) {
    std::vector<float> sum(held[0].size() - index(s_.window), 0.0f), pooled;
    for (const int q : heads_) {
      const WindowMoments moments = measure_window(layer_, q, end, s_.window, held[list_of(q)], Moments::kSums);
      reduced_.assign(moments.sum.begin(), moments.sum.end());
      pool(s_.pool, s_.pool_kernel, reduced_, pooled);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += pooled[i];
    }
    for (float& x : sum) x /= static_cast<float>(heads_.size());
    scores_.assign(held.size(), sum);
  }

  void evict(const Budgets& caps, std::vector<Held>& held) {
    for (std::size_t h = 0; h < held.size(); ++h) {
      std::vector<float>& scores = scores_[h];
      scores.resize(held[h].size());  // adds the window's tokens, which keep_best does not rank
      const std::int64_t all = caps[h] + s_.window, last = std::min(all, s_.last());
      keep_best(held[h], scores, {all, std::min(s_.sink, all - last), last});
    }
  }

  const PromptEviction s_;
  const LayerInput& input_;
  const trace::Layer& layer_;
  PromptRows rows_;
  std::int64_t budget_;
  bool per_head_ = false;
  bool whole_ = true;  // the prompt is read at once
  Budgets caps_;
  std::vector<int> heads_;
  std::vector<std::vector<float>> scores_;
  std::vector<float> reduced_;
};

}  // namespace

std::unique_ptr<EvictionRule> prompt_rule(const PromptEviction& setting, const LayerInput& layer, std::int64_t budget) {
  return std::make_unique<WindowRule>(setting, layer, budget);
}

std::int64_t layer_budget(const PromptEviction& s, int layer, int layers, std::int64_t prompt,
                          const std::vector<double>& preferences) {
  if (prompt <= s.budget && s.layers != LayerBudgets::kErrors) return s.budget;
  const Pyramid pyramid{s.budget - s.window, prompt - s.window, s.window, s.beta};
  switch (s.layers) {
    case LayerBudgets::kPyramid:
      return pyramid_budgets(pyramid, layers)[index(layer)] + s.window;
    case LayerBudgets::kSmoothPyramid:
      return smooth_pyramid_budgets({s.budget, pyramid.available, pyramid.window, s.beta}, layers)[index(layer)];
    case LayerBudgets::kErrors: {
      const std::vector<double> shares = s.profile->layer_shares();
      const auto n = static_cast<std::int64_t>(shares.size());
      return error_aware_budgets(shares, s.budget * n, std::min(s.least, s.budget),
                                 s.most_factor * s.budget)[index(layer)];
    }
    case LayerBudgets::kPreference:
      return preference_budgets(preferences, pyramid.base * layers, pyramid.available)[index(layer)] + s.window;
    case LayerBudgets::kUniform:
      break;
  }
  return s.budget;
}

std::vector<double> survey_preferences(const PromptEviction& s, std::span<const LayerInput* const> layers) {
  if (layers.empty() || s.layers != LayerBudgets::kPreference) return {};
  const trace::TraceInfo& info = layers[0]->info();
  if (info.prompt_tokens <= s.budget) return {};
  Profile captured;  // for its rule of the nearest layer
  captured.n_layers = info.n_layers;
  require_prompt_queries(info, info.prompt_tokens - s.window, "the last queries of the prompt rank its layers");
  for (const LayerInput* input : layers) {
    double entropy = 0, variance = 0;
    const auto heads = input->window_moments(s.window);
    for (const WindowMoments& head : *heads) {
      entropy += head.entropy;
      for (std::size_t i = 0; i < head.sum.size(); ++i) variance += head.variance(i, s.window);
    }
    captured.layer_errors[input->layer().id()] =
        std::pow(std::max(entropy, 0.0), 1 / s.tau1) * std::pow(variance, 1 / s.tau2);
  }
  return captured.layer_shares();
}

}  // namespace kvcast::policy
