// SparQ attention (Ribar et al., "SparQ Attention: Bandwidth-Efficient LLM Inference", ICML 2024, arXiv 2312.04985,
// algorithm 1; code: graphcore-research/llm-inference-research).
//
// Idea: the few dimensions in which a query is large determine most of its scores; the mean value replaces the omitted
// tokens.
// Selection in each step, for every KV head: (1) i1 = the r dimensions with the largest Σ_heads |q|. (2) Every query
// head estimates ŝ = softmax(q[i1]·K[i1] / √(d·‖q[i1]‖₁ / ‖q‖₁)). (3) The logits are summed over the group, the last
// `recent` tokens and the first `sink` are selected first, and then the best, k + 1 tokens in all, k = budget. With
// `recent: 0` the current token competes like any other. Output: α·softmax(q·K/√d)·V over these + (1 − α)·v̄, with α = Σ
// ŝ of the selected tokens and v̄ the mean of all values. Cost: Σ|q| and its top-r; n_kv·L·r·b read, contiguously from a
// second copy of the keys stored dimension by dimension, otherwise r of d elements per row; top-k over L; attention
// 2·n_kv·(k + 1)·d·b; α from the scores; v̄. All in sequence. Storage: 3·n_kv·L·d·b with the second copy, 2·n_kv·L·d·b
// without; v̄ n_kv·d·b.
//
// budget_convention traffic (RocketKV's comparison, arXiv 2502.14051, section 3.6): r = d·t / S_max, k = ⌊t / 2⌋.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy::sparq {
namespace {

struct SparqSetting {
  std::int64_t budget = 0;  // a step with at most this many tokens reads all of them
  std::int64_t tokens = 0;  // k
  std::int64_t sink = 0, recent = 0;
  std::int64_t dims = 0;   // r, if it is given; at most the head dimension
  std::int64_t bound = 0;  // otherwise S_max: r / d is the budget's share of it
  bool traffic = false;    // the budget counts traffic: r follows from S_max
  Group group = Group::kSumScores;
  bool mean_value = true, second_copy = true;

  std::int64_t dims_of(int head_dim) const {
    if (bound == 0) return std::min<std::int64_t>(dims, head_dim);
    // Rounds halves to even, like Python's round.
    const double share = static_cast<double>(budget) * head_dim / static_cast<double>(bound);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::nearbyint(share)), 1, head_dim);
  }
};

SparqSetting sparq_at(const SparqSetting& setting, const Lengths& request) {
  SparqSetting s = setting;
  if (s.traffic) s.bound = request.bound();
  return s;
}

class SparqHead final : public HeadRetrievalBy<SparqSetting> {
 public:
  SparqHead(const LayerInput& input, int kv_head, const TokenList& tokens, const SparqSetting& setting)
      : HeadRetrievalBy(input, kv_head, tokens, setting),
        dims_(index(setting.dims_of(input.info().head_dim))),
        products_(layer_.keys(kv_head), input.info().decode_steps, members_,
                  [this](int t, std::size_t member, std::span<float> out) { write_query(t, member, out); }),
        value_sum_(d_),
        rows_(members_),
        outputs_(members_ * d_) {
    for (std::int64_t i = 0; s_.mean_value && i < tokens_.prompt_tokens_kept(); ++i) add_value(tokens_.position(i));
  }

  void step(int t, std::span<HeadSelection> out) override {
    const std::int64_t n = tokens_.size(t);
    if (s_.mean_value) add_value(tokens_.position(n - 1));
    replaced_ = false;
    if (s_.budget >= n || s_.tokens + 1 >= n) return tokens_.append_all(t, out[0].attended);
    estimate(t, index(n));
    std::vector<float> ranked = reduced_;
    rank_first(ranked, index(s_.sink), index(s_.recent));
    ranking_.select(ranked, index(s_.tokens + 1), out[0].attended);
    out[0].counts.scored = n;
    const std::vector<std::int32_t> indices = out[0].attended;
    for (std::int32_t& i : out[0].attended) i = tokens_.position(i);
    if (!s_.mean_value) return;
    replaced_ = true;
    for (std::size_t g = 0; g < members_; ++g) blend(t, g, indices, out[0].attended);
  }

  std::span<const float> output(int member) const override {
    if (!replaced_) return {};
    return {outputs_.data() + index(member) * d_, d_};
  }

 private:
  const float* query(int t, std::size_t member) const {
    return layer_.decode_query(kv_head_ * static_cast<int>(members_) + static_cast<int>(member), t);
  }

  // The scaled query, with zeros in the dimensions that are not read.
  void write_query(int t, std::size_t member, std::span<float> out) const {
    const float* const q = query(t, member);
    float all = 0, chosen = 0;
    for (std::size_t j = 0; j < d_; ++j) all += std::abs(q[j]);
    for (const std::int32_t i : largest_dims(layer_, kv_head_, t, dims_)) {
      const auto j = index(i);
      out[j] = q[j];
      chosen += std::abs(q[j]);
    }
    const float share = all > 0 && chosen > 0 ? chosen / all : 1.0f;
    const float scale = 1.0f / std::sqrt(static_cast<float>(d_) * share);
    for (float& x : out) x *= scale;
  }

  // Computes logits of every query head over the list, and their reduction over the group.
  void estimate(int t, std::size_t n) {
    for (std::size_t g = 0; g < members_; ++g) {
      const std::span<const float> all = products_.row(t, g);
      rows_[g].resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        rows_[g][i] = all[index(tokens_.position(i))];
      }
    }
    // The group's weights are computed in place on a copy, because α needs the logits.
    work_ = rows_;
    const std::vector<std::span<float>> views(work_.begin(), work_.end());
    reduced_.resize(n);
    reduce_group(s_.group, views, 1.0f, reduced_);
  }

  void blend(int t, std::size_t member, const std::vector<std::int32_t>& indices,
             std::span<const std::int32_t> attended) {
    softmax(rows_[member]);
    float mass = 0;
    for (const std::int32_t i : indices) mass += rows_[member][index(i)];
    const std::span out(outputs_.data() + member * d_, d_);
    attend_to(layer_, kv_head_ * static_cast<int>(members_) + static_cast<int>(member), t, attended, out);
    for (std::size_t j = 0; j < d_; ++j) {
      const auto mean = static_cast<float>(value_sum_[j] / static_cast<double>(values_));
      out[j] = mass * out[j] + (1 - mass) * mean;
    }
  }

  void add_value(std::int32_t position) {
    const float* const value = layer_.values(kv_head_).row(index(position));
    for (std::size_t j = 0; j < d_; ++j) value_sum_[j] += value[j];
    ++values_;
  }

  std::size_t dims_;
  StepScores products_;
  Ranking ranking_;
  std::vector<double> value_sum_;
  std::int64_t values_ = 0;
  std::vector<std::vector<float>> rows_, work_;  // logits by query head
  std::vector<float> reduced_, outputs_;
  bool replaced_ = false;
};

class Sparq final : public RetrievalByRequest<SparqHead, SparqSetting> {
 public:
  using RetrievalByRequest::RetrievalByRequest;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double bytes = shape.batch * m.kv_heads * kept * m.row();
    if (s_.second_copy) {
      ops.compute(Kind::kIndex, "second copy of keys", Kernel{KernelClass::kConvert, bytes, bytes}, {ops.ready()});
    }
    if (s_.mean_value) {
      const Kernel mean{KernelClass::kReduce, bytes, shape.batch * m.kv_heads * m.row(), bytes / m.element};
      ops.compute(Kind::kIndex, "mean value", mean, {ops.ready()});
    }
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const OpId appended = append(shape, ops);
    const double scored = shape.sum(&HeadCounts::scored);
    if (scored <= 0) return ops.done(ops.attention(attention_over(shape, 0), {appended}));
    std::vector<double> dims;  // by sequence
    double read = 0;           // dimensions of all tokens scored
    for (std::size_t i = 0; i < shape.sequences.size(); ++i) {
      dims.push_back(static_cast<double>(at(shape.sequences[i].request).dims_of(shape.model->head_dim)));
      read += shape.sum_of(i, &HeadCounts::scored) * dims.back();
    }
    const double mean = std::accumulate(dims.begin(), dims.end(), 0.0) / shape.batch;
    const double heads = shape.batch * m.kv_heads;
    const Kernel sum{KernelClass::kReduce, shape.batch * m.q_heads * m.row(), heads * m.d * kScoreBytes,
                     shape.batch * m.q_heads * m.d};
    OpId op = ops.compute(Kind::kScore, "sum of |q|", sum, {appended});
    op = ops.compute(Kind::kTopK, "top-r dimensions", TopK{heads, m.d, mean, kScoreBytes}, {op});
    op = estimate(shape, read, ops, op);
    op = ops.attention(attention_over(shape, gathered_unit(shape)), {op});
    ops.done(s_.mean_value ? blend(shape, scored, ops, op) : op);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    const Dims m(*shape.model);
    const double heads = shape.batch * shape.model->layers * m.kv_heads;
    std::vector<MemoryItem> items;
    if (s_.second_copy) {
      items.push_back(in_hbm(Owner::kSecondKeyCopy, heads * tokens * m.row()));
    }
    if (s_.mean_value) items.push_back(in_hbm(Owner::kMeanValues, heads * m.row()));
    return items;
  }

  Growth growth(const Lengths&) const override { return {.scored = 1, .fill = s_.budget, .when_full = s_.tokens}; }

 private:
  // Adds the new key to the second copy and the new value to the mean.
  OpId append(const DecodeLayer& shape, LayerOps& ops) const {
    const Dims m(*shape.model);
    const double row = shape.batch * m.kv_heads * m.row();
    if (!s_.second_copy && !s_.mean_value) return ops.ready();
    Kernel work{KernelClass::kElementwise, 0, 0};
    if (s_.second_copy) work.read_bytes += row, work.write_bytes += row;
    if (s_.mean_value) work.read_bytes += 2 * row, work.write_bytes += row;
    return ops.compute(Kind::kIndex, "append to key copy and mean value", work, {ops.ready()});
  }

  // Without the second copy a row's r elements are gathered one at a time.
  OpId estimate(const DecodeLayer& shape, double read, LayerOps& ops, OpId after) const {
    const Dims m(*shape.model);
    if (!s_.second_copy) {
      const Kernel gather{.cls = KernelClass::kGather,
                          .read_bytes = read * m.element,
                          .write_bytes = read * m.element,
                          .unit_bytes = m.element};
      after = ops.compute(Kind::kScore, "gather dimensions", gather, {after});
    }
    return score_and_rank(shape, read * m.element, 2 * read * m.group, s_.tokens + 1, ops, after, Lane::kCompute,
                          Reduction::kPlain, s_.second_copy ? Index::kByDimension : Index::kByUnit);
  }

  // α reads the logits once more.
  OpId blend(const DecodeLayer& shape, double scored, LayerOps& ops, OpId after) const {
    const Dims m(*shape.model);
    const double logits = scored * m.group, outputs = shape.batch * m.q_heads;
    const Kernel mass{KernelClass::kReduce, logits * kScoreBytes, outputs * kScoreBytes, 2 * logits};
    after = ops.compute(Kind::kScore, "mass of selected tokens", mass, {after});
    const Kernel mix{KernelClass::kElementwise, (outputs + shape.batch * m.kv_heads) * m.row(), outputs * m.row(),
                     3 * outputs * m.d};
    return ops.compute(Kind::kAttention, "add mean value", mix, {after});
  }
};

Fields<SparqSetting> sparq_fields() {
  using S = SparqSetting;
  return Fields<S>()
      .add(budget_parameter("k: k + 1 tokens are attended to, the current one among them if recent is at least 1"),
           &S::budget)
      .add(whole("dims", 32, "dimensions", "r: head dimensions read by the estimate, at most the head dimension", 1,
                 65536),
           &S::dims)
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent)
      .add(group_parameter({"sum_scores", "mean_scores", "max_scores", "sum_weights", "mean_weights", "max_weights"}),
           &S::group)
      .add(flag("mean_value", true, "weight the mean of all values by the estimated mass of the omitted tokens"),
           &S::mean_value)
      .add(choice("keys", {"stored_twice", "stored_once"},
                  "storage of keys: with a second copy by dimension, which is read contiguously, or without"),
           &S::second_copy, {true, false})
      .add(choice("budget_convention", {"attended", "traffic"},
                  "quantity that the budget counts: tokens attended to, or all traffic in units of a token"));
}

Stages make_sparq(const ParameterValues& values) {
  SparqSetting s = sparq_fields().read(values);
  s.tokens = s.budget;
  if (values.text("budget_convention") == "traffic") {
    if (values.given("dims")) {
      throw UserError(values.where("dims"), "under the traffic convention the budget determines dims");
    }
    s.tokens = s.budget / 2;
    s.traffic = true;
  }
  check_quota(values, {s.tokens + 1, s.sink, s.recent});
  return {keep_all(), std::make_unique<Sparq>(s, sparq_at)};
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "sparq";
  d.sentence =
      "Keeps everything on the GPU, finds tokens by the few dimensions in which the query is large, and uses the mean "
      "value for the others.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Ribar et al., SparQ Attention, ICML 2024 (arXiv 2312.04985)";
  d.parameters = sparq_fields().parameters();
  d.budget_convention =
      "budget + 1 tokens, the current one among them for certain only if recent is at least 1; traffic: r = "
      "d·budget / S_max dimensions and ⌊budget / 2⌋ + 1 tokens";
  d.formulas = {"traffic: n_kv·L·r·b + 2·n_kv·(k + 1)·d·b per step", "storage: 3·n_kv·L·d·b + n_kv·d·b"};
  d.differences = {"the local window is 0 by default; in the paper's runs it is a part of k: recent",
                   "keys stored twice take 1.5 times the memory of the cache; RocketKV's table of storage counts 2"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const std::int64_t budget = values.integer("budget");
    const bool traffic = values.text("budget_convention") == "traffic";
    BudgetRule rule = chooses(budget, traffic ? budget / 2 : budget, 0, lengths.prompt_tokens);
    rule.extra = 1;
    if (traffic) rule.counts = BudgetRule::Counts::kTraffic;
    return rule;
  };
  d.stages = make_sparq;
  return d;
}

}  // namespace kvcast::policy::sparq
