// Exact top-k: the oracle with which approximate retrieval is compared.
//
// Idea: select the `budget` tokens with the largest scores, with perfect knowledge of all scores.
// Selection: the k = budget best tokens by q·k / √d at each step. `per_head` (the oracle of RocketKV's comparison,
// arXiv 2502.14051, appendix A): every query head selects separately; otherwise one set per KV head by the group rule.
// The first `sink` and the last `recent` tokens, including the current one, are always among the k; the others compete
// for k − sink − recent places (as in all retrieval methods in FreeKV, arXiv 2505.13109, section 2.2: B − S − W).
// Cost: `scan` (the minimum for an implementation): reads all keys (n_kv·L·d·b), writes n_q·L scores, top-k over L,
// then gathers 2·n·k·d·b. `free`: the gather only, as papers count it.
// Storage: as full.
#include <cmath>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy::exact_topk {
namespace {

struct ExactSetting {
  std::int64_t budget = 0, sink = 0, recent = 0;
  Group group = Group::kPerHead;
  bool free = false;  // finding the tokens has no cost
};

class ExactHead final : public HeadRetrievalBy<ExactSetting> {
 public:
  ExactHead(const LayerInput& input, int kv_head, const TokenList& tokens, const ExactSetting& setting)
      : HeadRetrievalBy(input, kv_head, tokens, setting) {
    if (combines_queries(s_.group)) combine();
  }

  void step(int t, std::span<HeadSelection> out) override {
    const std::int64_t n = tokens_.size(t);
    const int members = layer_.info().group();
    if (s_.budget >= n) {
      for (HeadSelection& head : out) tokens_.append_all(t, head.attended);
      return;
    }
    for (HeadSelection& head : out) head.counts.scored = s_.free ? 0 : n;
    if (s_.group == Group::kPerHead) {
      for (std::size_t g = 0; g < out.size(); ++g) {
        select(listed(layer_.decode_scores(kv_head_ * members + static_cast<int>(g)).row(index(t)), n), out[g]);
      }
    } else if (combines_queries(s_.group)) {
      select(listed(combined_.data() + index(t) * index(layer_.info().positions()), n), out[0]);
    } else {
      work_.resize(index(members));
      std::vector<std::span<float>> rows;
      for (int g = 0; g < members; ++g) {
        const std::span<const float> row = listed(layer_.decode_scores(kv_head_ * members + g).row(index(t)), n);
        work_[index(g)].assign(row.begin(), row.end());
        rows.emplace_back(work_[index(g)]);
      }
      reduced_.resize(index(n));
      reduce_group(s_.group, rows, 1.0f / std::sqrt(static_cast<float>(layer_.info().head_dim)), reduced_);
      select(reduced_, out[0]);
    }
  }

 private:
  // Scores of the list's tokens, taken from those of all positions.
  std::span<const float> listed(const float* row, std::int64_t n) {
    if (tokens_.whole()) return {row, index(n)};
    gathered_.resize(index(n));
    for (std::int64_t i = 0; i < n; ++i) gathered_[index(i)] = row[tokens_.position(i)];
    return gathered_;
  }

  void select(std::span<const float> scores, HeadSelection& out) {
    if (s_.sink + s_.recent > 0) {
      pinned_.assign(scores.begin(), scores.end());
      rank_first(pinned_, index(s_.sink), index(s_.recent));
      scores = pinned_;
    }
    ranking_.select(scores, index(s_.budget), out.attended);
    if (tokens_.whole()) return;
    for (std::int32_t& i : out.attended) i = tokens_.position(i);
  }

  // Scores of the combined queries of all steps, as one product.
  void combine() {
    const trace::TraceInfo& info = layer_.info();
    const std::size_t d = index(info.head_dim), steps = index(info.decode_steps);
    std::vector<float> queries(steps * d);
    std::vector<const float*> heads(index(info.group()));
    for (int t = 0; t < info.decode_steps; ++t) {
      for (int g = 0; g < info.group(); ++g) heads[index(g)] = layer_.decode_query(kv_head_ * info.group() + g, t);
      combine_queries(s_.group, heads, d, std::span(queries).subspan(index(t) * d, d));
    }
    combined_.resize(steps * index(info.positions()));
    multiply_transposed({queries.data(), steps, d, d}, layer_.keys(kv_head_), combined_.data(),
                        index(info.positions()));
  }

  Ranking ranking_;
  std::vector<float> combined_, gathered_, reduced_, pinned_;
  std::vector<std::vector<float>> work_;
};

class ExactTopK final : public RetrievalBy<ExactHead, ExactSetting> {
 public:
  using RetrievalBy::RetrievalBy;

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double keys = units_read(shape);
    const OpId chosen = score_and_rank(shape, keys * m.row(), 2 * keys * m.group * m.d, s_.budget, ops, ops.ready());
    ops.done(ops.attention(attention_to_selected(shape, gathered_unit(shape)), {chosen}));
  }

  Growth growth(const Lengths&) const override { return {.scored = s_.free ? 0.0 : 1.0, .fill = s_.budget}; }
};

Fields<ExactSetting> exact_topk_fields() {
  using S = ExactSetting;
  return Fields<S>()
      .add(budget_parameter("tokens attended to per selecting head"), &S::budget)
      .add(group_parameter({"per_head", "sum_scores", "mean_scores", "max_scores", "sum_weights", "mean_weights",
                            "max_weights", "mean_query", "max_query"}),
           &S::group)
      .add(choice("identification", {"scan", "free"}, "cost of finding the tokens: a scan of all keys, or none"),
           &S::free)
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent);
}

Stages make_exact_topk(const ParameterValues& values) {
  const ExactSetting s = exact_topk_fields().read(values);
  check_quota(values, {s.budget, s.sink, s.recent});
  return {keep_all(), std::make_unique<ExactTopK>(s)};
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "exact_topk";
  d.sentence = "Attends to the tokens with the largest true scores: an upper bound for retrieval, not a fast method.";
  d.category = Category::kOracle;
  d.paper = "the oracle of Behnam et al., RocketKV, 2025 (arXiv 2502.14051), appendix A";
  d.parameters = exact_topk_fields().parameters();
  d.budget_convention = "per query head with group: per_head, otherwise per KV head; includes sink and recent";
  d.formulas = {"traffic: n_kv·L·d·b (scan) + 2·n·budget·d·b, n = n_q per head, otherwise n_kv",
                "storage: 2·n_kv·L·d·b"};
  d.differences = {"papers count only the gather: identification: free"};
  d.stages = make_exact_topk;
  return d;
}

}  // namespace kvcast::policy::exact_topk
