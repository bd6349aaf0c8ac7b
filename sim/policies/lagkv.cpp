// LagKV (Liang et al., "LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are Important", 2025, arXiv
// 2504.04704; code: NVIDIA/kvpress, lagkv_press.py).
//
// Idea: a token matters if its key and value vary more over their channels than those of the tokens that follow.
// Selection, once after the prompt, per KV head: after the first `sink` tokens the prompt is cut into partitions of
// `lag` tokens. Keys and values of a partition are scaled, channel by channel, by the minimum and maximum of the next
// partition; the standard deviation over a token's channels, in a softmax over the partition, is its score, the mean of
// that of keys and of values. It is replaced by its rank in the partition. The sink, the last whole partition, what
// follows it, and the tokens of the highest ranks are kept, `budget` in all.
// Cost of the prompt: keys and values read once, a sort of each partition, top-k, compaction. A step reads
// 2·n_kv·(budget + T)·d·b. No queries are needed.
// Storage: the same.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::lagkv {
namespace {

struct LagSetting {
  std::int64_t budget = 0, sink = 0, recent = 0, lag = 1;
};

// Softmax over the partition from `first` of the deviations of its tokens' channels, relative to the next partition.
std::vector<float> relative_spread(const MatrixView& all, std::int64_t first, std::int64_t lag) {
  const std::size_t d = all.cols;
  std::vector<double> low(d), width(d);
  for (std::size_t j = 0; j < d; ++j) {
    double least = 0, most = 0;
    for (std::int64_t i = first + lag; i < first + 2 * lag; ++i) {
      const auto x = static_cast<double>(all.row(static_cast<std::size_t>(i))[j]);
      least = i == first + lag ? x : std::min(least, x), most = i == first + lag ? x : std::max(most, x);
    }
    low[j] = least, width[j] = most - least;
  }
  std::vector<float> out;
  for (std::int64_t i = first; i < first + lag; ++i) {
    const float* const row = all.row(static_cast<std::size_t>(i));
    double sum = 0, squares = 0;
    for (std::size_t j = 0; j < d; ++j) {
      const double x = width[j] > 0 ? (static_cast<double>(row[j]) - low[j]) / width[j] : 0;
      sum += x, squares += x * x;
    }
    const auto n = static_cast<double>(d);
    out.push_back(static_cast<float>(d > 1 ? std::sqrt(std::max(0.0, (squares - sum * sum / n) / (n - 1))) : 0));
  }
  softmax(out);
  return out;
}

class LagRetention final : public Retention {
 public:
  explicit LagRetention(const LagSetting& setting) : s_(setting) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    if (layer.info().prompt_tokens <= s_.budget) return {};
    std::vector<Held> held;
    for (int h = 0; h < layer.info().n_kv_heads; ++h) {
      append_range(0, layer.info().prompt_tokens, held.emplace_back());
      keep_best(held.back(), scores(layer.layer(), h), {s_.budget, s_.sink, s_.recent});
    }
    return held;
  }

  std::int64_t kept(const Lengths& request) const override { return std::min(request.prompt_tokens, s_.budget); }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape, s_.budget);
    if (n == 0) return;
    const Dims m(*shape.model);
    const double lists = shape.batch * m.kv_heads;
    // Minimum, maximum, difference and quotient, sum and square of each number.
    Kernel spread{KernelClass::kReduce, 2 * lists * n * m.row(), 2 * lists * n * kScoreBytes};
    spread.flops = 6 * 2 * lists * n * m.d;
    const OpId op = ops.compute(Kind::kScore, "spread of channels", spread, {ops.ready()});
    // Two softmaxes and their mean; two sorts of each partition give ranks.
    const Kernel ranks{KernelClass::kSort, 4 * lists * n * kScoreBytes, 2 * lists * n * kScoreBytes};
    rank_and_compact(*shape.model, lists, n, s_.budget, ops,
                     ops.compute(Kind::kScore, "ranks in partitions", ranks, {op}));
  }

 private:
  // 1 for tokens that stay in any case, otherwise the share of the partition that scores lower.
  std::vector<float> scores(const trace::Layer& layer, int head) const {
    const std::int64_t prompt = layer.info().prompt_tokens, whole = (prompt - s_.sink) / s_.lag;
    std::vector<float> out(prompt, 1.0f);
    std::vector<std::int32_t> order(s_.lag);
    for (std::int64_t p = 0; p + 1 < whole; ++p) {
      const std::int64_t first = s_.sink + p * s_.lag;
      std::vector<float> both = relative_spread(layer.keys(head), first, s_.lag);
      const std::vector<float> values = relative_spread(layer.values(head), first, s_.lag);
      for (std::size_t i = 0; i < both.size(); ++i) both[i] += values[i];
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, {}, [&](std::int32_t i) { return both[i]; });
      for (std::size_t rank = 0; rank < order.size(); ++rank) {
        out[first + order[rank]] = static_cast<float>(rank) / static_cast<float>(s_.lag);
      }
    }
    return out;
  }

  LagSetting s_;
};

const Fields<LagSetting>& lagkv_fields() {
  using S = LagSetting;
  static const Fields<S> all =
      Fields<S>()
          .add(budget_parameter("prompt tokens kept per KV head"), &S::budget)
          .add(whole("sink", 4, "tokens", "first tokens, which are never evicted; within the budget"), &S::sink)
          .add(recent_parameter(), &S::recent)
          .add(whole("lag", 128, "tokens", "tokens of a partition, which the next one rates", 1, 1e6), &S::lag);
  return all;
}

LagSetting read_lagkv(const ParameterValues& values) {
  const LagSetting s = lagkv_fields().read(values);
  check_quota(values, {s.budget, s.sink, s.recent});
  if (s.budget < s.sink + 2 * s.lag - 1) {
    throw UserError(values.where("budget"),
                    fmt::format("lagkv: the budget ({} tokens) does not hold the {} of the sink and up to {} at the "
                                "end of the prompt, which no partition rates",
                                s.budget, s.sink, 2 * s.lag - 1));
  }
  return s;
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "lagkv";
  d.sentence = "Keeps the prompt tokens whose keys and values vary more than those that follow; needs no queries.";
  d.category = Category::kDrop;
  d.paper = "Liang et al., LagKV, 2025 (arXiv 2504.04704)";
  d.parameters = lagkv_fields().parameters();
  d.budget_convention = "prompt tokens, including the sink and the end of the prompt; in addition generated tokens";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step", "prompt: 2·n_kv·S·d·b to read keys and values",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b"};
  d.differences = {
      "one selection of the whole prompt as in kvpress; the paper cuts each partition to its share as soon as the next "
      "one exists, also while decoding",
      "a channel that does not vary in the next partition counts as 0; equal ranks of two partitions go to the "
      "earlier"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) { return evicts_once(values.integer("budget")); };
  d.stages = [](const ParameterValues& values) {
    return Stages{std::make_unique<LagRetention>(read_lagkv(values)), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy::lagkv
