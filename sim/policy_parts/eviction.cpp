// The frame of H2O, TOVA, D2O, KeyDiff and CAKE's decode mode, which also runs prompt-end eviction block by block (Park
// et al., "KeyDiff", 2025, arXiv 2504.15364, section 2: block prompt processing).
#include "policy_parts/eviction.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy_parts/growing_budget.hpp"
#include "policy_parts/ranking.hpp"
#include "trace/metadata.hpp"

namespace kvcast::policy {
namespace {

std::int64_t size_of(const Held& held) { return held.size(); }

class EvictingSelector final : public Selector {
 public:
  EvictingSelector(const LayerInput& layer, std::unique_ptr<EvictionRule> rule, std::int64_t block, bool per_query_head)
      : info_(layer.info()), rule_(std::move(rule)), block_(block), per_query_head_(per_query_head) {}

  void prefill(LayerSelection& resident) override {
    held_ = evict_prompt(*rule_, prompt_ends(info_, block_), per_query_head_ ? info_.n_q_heads : info_.n_kv_heads);
    resident.reset(held_.size(), per_query_head_);
    for (std::size_t h = 0; h < held_.size(); ++h) resident.heads[h].attended = held_[h];
  }

  void step(int t, LayerSelection& out) override {
    out.reset(held_.size(), per_query_head_);
    for (std::size_t h = 0; h < held_.size(); ++h) {
      held_[h].push_back(static_cast<std::int32_t>(info_.prompt_tokens + t));
      out.heads[h].attended = held_[h];
    }
    rule_->after_step(t, held_);
    for (std::size_t h = 0; h < held_.size(); ++h) {
      const Held& before = out.heads[h].attended;
      std::set_difference(before.begin(), before.end(), held_[h].begin(), held_[h].end(),
                          std::back_inserter(out.heads[h].evicted));
    }
  }

  std::span<const float> output(int q_head) const override { return rule_->output(q_head); }

 private:
  const trace::TraceInfo& info_;
  std::unique_ptr<EvictionRule> rule_;
  std::int64_t block_;
  bool per_query_head_;
  std::vector<Held> held_;
};

}  // namespace

void EvictionRule::after_step(int, std::vector<Held>&) {}

std::vector<std::int32_t> keep_best(Held& held, std::span<const float> scores, const Quota& quota) {
  KVCAST_CHECK(scores.size() == held.size() && quota.sink + quota.recent <= quota.budget);
  std::vector<std::int32_t> stay;
  if (size_of(held) <= quota.budget) {
    append_range(0, size_of(held), stay);
    return stay;
  }
  // Sink tokens were never evicted, so they are first in the list; the recent ones are last.
  const auto sinks = std::lower_bound(held.begin(), held.end(), quota.sink) - held.begin();
  const auto end = static_cast<std::ptrdiff_t>(held.size()) - quota.recent;
  KVCAST_CHECK(sinks <= end);
  Ranking ranking;
  std::vector<std::int32_t> best;
  ranking.select(scores.subspan(static_cast<std::size_t>(sinks), static_cast<std::size_t>(end - sinks)),
                 static_cast<std::size_t>(quota.budget - sinks - quota.recent), best);
  append_range(0, sinks, stay);
  for (const std::int32_t i : best) stay.push_back(i + static_cast<std::int32_t>(sinks));
  append_range(end, size_of(held), stay);
  for (std::size_t i = 0; i < stay.size(); ++i) held[i] = held[stay[i]];
  held.resize(stay.size());
  return stay;
}

std::vector<std::int64_t> prompt_ends(const trace::TraceInfo& info, std::int64_t block) {
  std::vector<std::int64_t> starts = {0}, ends;
  for (const std::int64_t turn : trace::turns_of(info)) {
    if (turn > 0 && turn < info.prompt_tokens) starts.push_back(turn);
  }
  starts.push_back(info.prompt_tokens);
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    for (std::int64_t end = starts[i] + block; block > 0 && end < starts[i + 1]; end += block) ends.push_back(end);
    ends.push_back(starts[i + 1]);
  }
  return ends;
}

std::vector<Held> evict_prompt(EvictionRule& rule, std::span<const std::int64_t> ends, int heads) {
  std::vector<Held> held(heads);
  std::int64_t first = 0;
  for (const std::int64_t end : ends) {
    for (Held& head : held) append_range(first, end, head);
    rule.after_block(first, end, held);
    first = end;
  }
  return held;
}

std::unique_ptr<Selector> evicting_selector(const LayerInput& layer, std::unique_ptr<EvictionRule> rule,
                                            std::int64_t block, bool per_query_head) {
  return std::make_unique<EvictingSelector>(layer, std::move(rule), block, per_query_head);
}

Quota Quota::after(std::int64_t seen) const {
  Quota now = *this;
  if (grows) now.budget = std::max(sink + recent, grown_budget(budget, prompt, seen));
  return now;
}

BudgetRule evicts_always(Quota quota, const Lengths& request) {
  quota.prompt = request.prompt_tokens;
  BudgetRule rule = evicts_always(quota.after(request.bound()).budget);
  if (quota.grows) rule.slack = BudgetRule::kAny;
  return rule;
}

void check_quota(const ParameterValues& values, const Quota& quota) {
  if (quota.sink + quota.recent > quota.budget) {
    throw UserError(values.where(values.given("recent") ? "recent"
                                 : values.given("sink") ? "sink"
                                                        : "budget"),
                    fmt::format("sink ({}) and recent ({}) together exceed the budget ({})", quota.sink, quota.recent,
                                quota.budget));
  }
}

std::int64_t StepEviction::budget(std::int64_t seen, const Lengths& request) const {
  Quota quota = quota_;
  quota.prompt = request.prompt_tokens;
  return quota.after(seen).budget;
}

double StepEviction::tokens_to_rank(const PrefillLayer& shape) const {
  const std::int64_t held = std::min(shape.start, budget(shape.start, shape.request())) + shape.length();
  return held > budget(shape.stop(), shape.request()) ? static_cast<double>(held) : 0;
}

Growth StepEviction::growth(const Lengths& request) const {
  if (!quota_.grows) return {.fill = quota_.budget};
  return {.attended = std::min(1.0, static_cast<double>(quota_.budget) / static_cast<double>(request.prompt_tokens))};
}

std::vector<MemoryItem> StepEviction::memory(const MemoryShape& shape) const {
  const auto held = static_cast<double>(std::min(shape.tokens, budget(shape.tokens, shape.lengths) + 1));
  return {{graph::Pool::kHbm, graph::Owner::kKvCache, kv_bytes(shape, held, per_query_head_)}};
}

double tokens_to_rank(const PrefillLayer& shape, std::int64_t budget) {
  const std::int64_t held = std::min(shape.start, budget) + shape.length();
  return held > budget ? static_cast<double>(held) : 0;
}

void rank_and_compact(const config::Model& model, double rows, double lists, double ranked, double chosen, double kept,
                      LayerOps& ops, OpId after) {
  const Dims m(model);
  const TopK best{rows, ranked, std::min(chosen, ranked), kScoreBytes};
  const OpId picked = ops.compute(Kind::kTopK, "top-k", best, {after});
  const double moved = 2 * lists * kept * m.row();
  Kernel compact{KernelClass::kGather, moved, moved};
  compact.unit_bytes = m.row();
  ops.compute(Kind::kIndex, "compact", compact, {picked});
}

void rank_and_compact(const config::Model& model, double lists, double ranked, std::int64_t kept, LayerOps& ops,
                      OpId after) {
  const auto stay = static_cast<double>(kept);
  rank_and_compact(model, lists, lists, ranked, stay, stay, ops, after);
}

namespace {

// Python code drops a token by copying all others. FMInference/H2O, utils_real_drop/modify_llama.py: top-k and sort of
// the totals, positions of the window joined to them, and a mask, whose sum the host needs for each tensor indexed with
// it: keys, values and totals. schwartz-lab-NLP/TOVA gathers keys and values by the indices of a top-k.
void drop_by_operators(const DecodeLayer& shape, bool by_mask, double lists, LayerOps& ops, OpId after) {
  constexpr int kMaskOperators = 6;  // range, repetition, join, zeros, scatter, conversion
  const Dims m(*shape.model);
  const double held = shape.sum(&HeadCounts::attended), rows = shape.batch * lists;
  const double each = held / static_cast<double>(shape.heads.size());
  OpId op = ops.compute(Kind::kTopK, "tokens to keep", TopK{rows, each, each - 1, kScoreBytes}, {after});
  const double ids = rows * each * kIndexBytes;
  for (int i = 0; by_mask && i < kMaskOperators; ++i) {
    op = ops.compute(Kind::kIndex, "mask of kept tokens", Kernel{KernelClass::kElementwise, ids, ids}, {op});
  }
  const double keys = held * m.row();
  const auto copy = [&](const char* label, double bytes) {
    if (by_mask) op = ops.host(Lane::kHost, Kind::kSync, "sum of the mask", HostCall::kItemSync, 1, {op});
    Kernel kept{KernelClass::kGather, bytes, bytes};
    kept.unit_bytes = m.row();
    op = ops.compute(Kind::kIndex, label, kept, {op});
  };
  copy("kept keys", keys);
  copy("kept values", keys);
  if (by_mask) copy("kept totals", held * kScoreBytes);
}

}  // namespace

void attend_and_evict(const DecodeLayer& shape, bool accumulates, double lists, LayerOps& ops) {
  const Dims m(*shape.model);
  const double held = shape.sum(&HeadCounts::attended), evicted = shape.sum(&HeadCounts::evicted);
  const double weights = held * (shape.per_query_head ? 1 : m.group) * kScoreBytes;
  DecodeAttention work = attention_over(shape, 0);
  work.score_bytes = weights;
  OpId op = ops.attention(work, {ops.ready()});
  ops.done(op);
  const double totals = held * kScoreBytes;
  Kernel reduce{KernelClass::kReduce, weights + (accumulates ? totals : 0), totals};
  reduce.flops = weights / kScoreBytes;
  op = ops.compute(Kind::kScore, accumulates ? "add weights" : "reduce weights", reduce, {op});
  if (evicted <= 0) return;
  if (ops.unfused()) return drop_by_operators(shape, accumulates, lists, ops, op);
  evict_least(shape, shape.batch * lists, ops, op);
}

void evict_least(const DecodeLayer& shape, double rows, LayerOps& ops, OpId after) {
  const double held = shape.sum(&HeadCounts::attended) / static_cast<double>(shape.heads.size());
  const double numbers = shape.sum(&HeadCounts::evicted) * kIndexBytes;
  after = ops.compute(Kind::kTopK, "argmin", TopK{rows, held, 1, kScoreBytes}, {after});
  // Records the slot of the evicted token, where the next token is written.
  ops.compute(Kind::kIndex, "free slot", Kernel{KernelClass::kElementwise, numbers, numbers}, {after});
}

}  // namespace kvcast::policy
