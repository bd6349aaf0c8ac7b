// Expected Attention (Devoto et al., "Expected Attention: KV Cache Compression by Estimating Attention from Future
// Queries Distribution", 2025, arXiv 2510.00636; code: NVIDIA/kvpress, expected_attention_press.py).
//
// Idea: queries of a head are nearly Gaussian before rotary embedding, so that the expected attention of future queries
// to a key has a closed form.
// Selection, once after the prompt: per query head the mean μ and the covariance Σ of the prompt's queries before RoPE,
// from position `sink` on, both rotated by the mean rotation of the `future` positions after the prompt. Weights =
// softmax over the tokens after the sink of μ·k/√d + kᵀΣk/(2d), averaged over the group, plus `epsilon`, times ‖v‖₂.
// The first `sink` and last `recent` tokens and the best others are kept, `budget` per KV head; generated tokens are
// kept. Cost of the prompt: the queries' covariance and keys times Σ, 2·n_q·S·d² FLOP each; values read for their
// norms; top-k, compaction. A step reads 2·n_kv·(budget + T)·d·b. Storage: the same. The trace must contain the
// prompt's queries, or the last `queries` of them.
#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/pre_rope.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/spectrum.hpp"

namespace kvcast::policy::expected_attention {
namespace {

struct ExpectedSetting {
  std::int64_t budget = 0, sink = 0, recent = 0, future = 0, queries = 0;
  bool covariance = true, value_norm = true;
  double epsilon = 0;
  Quota quota() const { return {budget, sink, recent}; }
};

// Mean and covariance of a query head before RoPE.
struct QueryMoments {
  std::vector<float> mean, covariance;
};

class ExpectedScores {
 public:
  ExpectedScores(const trace::Layer& layer, const ExpectedSetting& setting)
      : layer_(layer), s_(setting), d_(index(layer.info().head_dim)) {
    const trace::TraceInfo& info = layer.info();
    first_ = s_.queries > 0 ? std::max(s_.sink, info.prompt_tokens - s_.queries) : s_.sink;
    require_prompt_queries(info, first_, "expected_attention needs moments of the prompt's queries");
    for (const double frequency : trace_frequencies(info)) {
      double cosine = 0, sine = 0;
      for (std::int64_t f = 0; f < s_.future; ++f) {
        const double angle = frequency * (info.prompt_tokens + f);
        cosine += std::cos(angle), sine += std::sin(angle);
      }
      cos_.push_back(static_cast<float>(cosine / s_.future));
      sin_.push_back(static_cast<float>(sine / s_.future));
    }
  }

  // One score per prompt token of a KV head; those of the sink are 0.
  std::vector<float> of(int kv_head) const {
    const trace::TraceInfo& info = layer_.info();
    const auto sink = index(s_.sink), prompt = index(info.prompt_tokens);
    const std::vector<float> keys = turn_keys(kv_head);
    std::vector<float> scores(prompt), row(prompt - sink);
    for (int g = 0; g < info.group(); ++g) {
      score_head(moments(kv_head * info.group() + g), keys, row);
      softmax(row);
      for (std::size_t i = 0; i < row.size(); ++i) scores[sink + i] += row[i] / static_cast<float>(info.group());
    }
    for (std::size_t i = sink; s_.value_norm && i < prompt; ++i) {
      const float* const value = layer_.values(kv_head).row(i);
      scores[i] = (scores[i] + static_cast<float>(s_.epsilon)) * std::sqrt(dot(value, value, d_));
    }
    return scores;
  }

 private:
  QueryMoments moments(int q_head) const {
    const trace::TraceInfo& info = layer_.info();
    const auto n = index(info.prompt_tokens - first_);
    MatrixView rows = layer_.queries(q_head);
    rows.data = rows.row(index(info.prompt_queries()) - n);
    rows.rows = n;
    const std::vector<float> before = turned_back(info, rows, first_);
    QueryMoments out;
    std::vector<double> sum(d_);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < d_; ++j) sum[j] += static_cast<double>(before[i * d_ + j]);
    }
    for (const double x : sum) out.mean.push_back(static_cast<float>(x / static_cast<double>(n)));
    if (!s_.covariance) return out;
    out.covariance = second_moments({before.data(), n, d_, d_}, true);
    for (float& x : out.covariance) x /= static_cast<float>(n);
    return out;
  }

  // R̄ᵀk of the keys after the sink, with the mean rotation R̄; μ and Σ need no rotation then.
  std::vector<float> turn_keys(int kv_head) const {
    const MatrixView keys = layer_.keys(kv_head);
    std::vector<float> out;
    for (std::int64_t i = s_.sink; i < layer_.info().prompt_tokens; ++i) {
      const float* const key = keys.row(index(i));
      for (std::size_t p = 0; p < cos_.size(); ++p) out.push_back(cos_[p] * key[p] + sin_[p] * key[cos_.size() + p]);
      for (std::size_t p = 0; p < cos_.size(); ++p) out.push_back(cos_[p] * key[cos_.size() + p] - sin_[p] * key[p]);
    }
    return out;
  }

  void score_head(const QueryMoments& query, const std::vector<float>& keys, std::vector<float>& out) const {
    const auto d = static_cast<float>(d_);
    std::vector<float> products;
    if (s_.covariance) {
      products.resize(keys.size());
      multiply({keys.data(), out.size(), d_, d_}, {query.covariance.data(), d_, d_, d_}, products.data(), d_);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float* const key = keys.data() + i * d_;
      out[i] = dot(query.mean.data(), key, d_) / std::sqrt(d);
      if (s_.covariance) out[i] += dot(products.data() + i * d_, key, d_) / (2 * d);
    }
  }

  const trace::Layer& layer_;
  ExpectedSetting s_;
  std::size_t d_;
  std::int64_t first_ = 0;        // prompt position of the first query
  std::vector<float> cos_, sin_;  // mean rotation by pair of channels
};

class ExpectedAttention final : public Retention {
 public:
  explicit ExpectedAttention(const ExpectedSetting& setting) : s_(setting) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    if (layer.info().prompt_tokens <= s_.budget) return {};
    const ExpectedScores scores(layer.layer(), s_);
    std::vector<Held> held;
    for (int h = 0; h < layer.info().n_kv_heads; ++h) {
      append_range(0, layer.info().prompt_tokens, held.emplace_back());
      keep_best(held.back(), scores.of(h), s_.quota());
    }
    return held;
  }

  std::int64_t kept(const Lengths& request) const override { return std::min(request.prompt_tokens, s_.budget); }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape, s_.budget);
    if (n == 0) return;
    const Dims m(*shape.model);
    const double lists = shape.batch * m.kv_heads, rows = shape.batch * m.q_heads * n;
    OpId op = ops.ready();
    if (s_.covariance) {
      const double queries = s_.queries > 0 ? std::min(n, static_cast<double>(s_.queries)) : n;
      for (const auto& [label, m_rows] :
           {std::pair("query covariance", rows / n * queries), {"keys by covariance", rows}}) {
        op = ops.compute(Kind::kScore, label, Gemm{m_rows, m.d, m.d}, {op});
      }
    }
    const double values = s_.value_norm ? lists * n * m.row() : 0;
    const Kernel scores{KernelClass::kScore, lists * n * m.row() + rows * m.row() * (s_.covariance ? 1 : 0) + values,
                        lists * n * kScoreBytes, rows * (s_.covariance ? 4 : 2) * m.d};
    op = ops.compute(Kind::kScore, "expected attention", scores, {op});
    rank_and_compact(*shape.model, lists, n, s_.budget, ops, op);
  }

 private:
  ExpectedSetting s_;
};

Fields<ExpectedSetting> expected_attention_fields() {
  using S = ExpectedSetting;
  return Fields<S>()
      .add(budget_parameter("prompt tokens kept per KV head"), &S::budget)
      .add(whole("sink", 4, "tokens", "first tokens, which are kept and whose queries are not used; within the budget"),
           &S::sink)
      .add(recent_parameter(), &S::recent)
      .add(whole("future", 512, "tokens", "positions after the prompt over which the rotation is averaged", 1, 1e6),
           &S::future)
      .add(whole_or("queries", "prompt", "queries", "last prompt queries from which the moments are computed", 1, 1e9),
           &S::queries)
      .add(flag("covariance", true, "use the covariance of queries in addition to their mean"), &S::covariance)
      .add(flag("value_norm", true, "multiply weights by the norm of the value"), &S::value_norm)
      .add(real("epsilon", 0, "added to a weight before the multiplication by the norm of the value"), &S::epsilon);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "expected_attention";
  d.sentence = "Keeps the prompt tokens to which future queries are expected to attend, and all generated tokens.";
  d.category = Category::kDrop;
  d.paper = "Devoto et al., Expected Attention, 2025 (arXiv 2510.00636)";
  d.parameters = expected_attention_fields().parameters();
  d.budget_convention = "prompt tokens, including the sink; generated tokens are kept in addition";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step", "prompt: 4·n_q·S·d² FLOP",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b"};
  d.differences = {
      "queries are those of the trace, with its rotary embedding undone; the released code computes them from hidden "
      "states and rejects models that normalise queries",
      "every KV head keeps the same number of tokens; kvpress recommends AdaKV's head budgets, which are not modelled",
      "only the prompt is compressed; the paper also compresses generated tokens"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) { return evicts_once(values.integer("budget")); };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    const ExpectedSetting s = expected_attention_fields().read(values);
    return ReplayNeeds{.whole_prompt = s.queries == 0, .window = s.queries};
  };
  d.stages = [](const ParameterValues& values) {
    const ExpectedSetting s = expected_attention_fields().read(values);
    check_quota(values, s.quota());
    return Stages{std::make_unique<ExpectedAttention>(s), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy::expected_attention
