// Eviction by score. Evicted tokens are lost for good. The prompt is read whole or in blocks, each followed by an
// eviction; a decode step attends first and evicts afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policy/weights.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {

// The tokens that an eviction leaves in each head: `budget`, including the first `sink` of the sequence and the last
// `recent` of the list.
struct Quota {
  std::int64_t budget = 0;
  std::int64_t sink = 0, recent = 0;
  bool grows = false;       // the budget is that of the prompt's end, and keeps its share of all tokens seen
  std::int64_t prompt = 0;  // tokens of the prompt, for a budget that grows
  Quota after(std::int64_t seen) const;
};

// Removes all tokens but the protected ones and the best of the others, `quota.budget` in all; ties go to the lower
// position. scores: one per held token. Returns the former indices of the tokens that stay, ascending.
std::vector<std::int32_t> keep_best(Held& held, std::span<const float> scores, const Quota& quota);

// Ranks and evicts in one layer of one sequence. There is one list of tokens per selecting head: KV heads, or query
// heads.
class EvictionRule {
 public:
  virtual ~EvictionRule() = default;
  // Called after prompt tokens first … end − 1 have been appended to every list and their queries have attended to it.
  virtual void after_block(std::int64_t first, std::int64_t end, std::vector<Held>& held) = 0;
  // Called after step t has attended to the lists, including its own token. By default nothing is evicted after the
  // prompt.
  virtual void after_step(int t, std::vector<Held>& held);
  // Like Selector::output, for the step last passed to after_step.
  virtual std::span<const float> output(int) const { return {}; }
};

// Ends of the pieces of the prompt that are each followed by an eviction: after each `block` tokens of a turn (0: none)
// and after each turn of the trace's conversation. An earlier answer belongs to its turn, because a trace does not
// state where it begins.
std::vector<std::int64_t> prompt_ends(const trace::TraceInfo& info, std::int64_t block);
// The tokens that each of `heads` lists contains after a prompt with these piece ends.
std::vector<Held> evict_prompt(EvictionRule& rule, std::span<const std::int64_t> ends, int heads);

// A selector that runs `rule` over the prompt, then attends to all held tokens at each step and lets the rule evict.
// `per_query_head`: one list per query head.
std::unique_ptr<Selector> evicting_selector(const LayerInput& layer, std::unique_ptr<EvictionRule> rule,
                                            std::int64_t block, bool per_query_head);

// The rule of a policy that evicts after each step.
BudgetRule evicts_always(Quota quota, const Lengths& request);

// Throws UserError if sink and recent together exceed the budget.
void check_quota(const ParameterValues& values, const Quota& quota);

// A policy that keeps `quota.budget` tokens per list between steps: it evicts after the prompt, or after each `block`
// of it, and one token after each step, or after each step at which the budget does not grow.
class StepEviction : public Policy {
 public:
  StepEviction(const Quota& quota, std::int64_t block, bool per_query_head = false)
      : quota_(quota), block_(block), per_query_head_(per_query_head) {}

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return evicting_selector(layer, rule(layer, request), block_, per_query_head_);
  }
  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths&) const override {
    return {block_, quota_.budget};
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override;  // the KV cache
  Growth growth(const Lengths& request) const override;

 protected:
  virtual std::unique_ptr<EvictionRule> rule(const LayerInput& layer, const Lengths& request) const = 0;
  // Tokens that a list keeps after `seen` tokens of a request.
  std::int64_t budget(std::int64_t seen, const Lengths& request) const;
  // Tokens of a list when the eviction after this block of the prompt starts; 0 if nothing is evicted.
  double tokens_to_rank(const PrefillLayer& shape) const;

  const Quota quota_;
  const std::int64_t block_;
  const bool per_query_head_;
};

// One whose setting has a quota and a block, and whose rule is Rule(layer, setting).
template <typename Rule, typename Setting>
class StepEvictionBy : public StepEviction {
 public:
  explicit StepEvictionBy(const Setting& setting, bool per_query_head = false)
      : StepEviction(setting.quota, setting.block, per_query_head), s_(setting) {}

 protected:
  std::unique_ptr<EvictionRule> rule(const LayerInput& layer, const Lengths& request) const override {
    Setting setting = s_;
    setting.quota.prompt = request.prompt_tokens;
    return std::make_unique<Rule>(layer, setting);
  }
  const Setting s_;
};

// ---- costs
//
// Tokens of a head when the eviction after this block starts, for a cache of `budget`; 0 if nothing is evicted.
double tokens_to_rank(const PrefillLayer& shape, std::int64_t budget);
// Finds the best `chosen` of `ranked` scores in `rows` rows and compacts the `kept` tokens of each KV list.
void rank_and_compact(const config::Model& model, double rows, double lists, double ranked, double chosen, double kept,
                      LayerOps& ops, OpId after);
// The same with one row per KV list, whose best `kept` tokens stay.
void rank_and_compact(const config::Model& model, double lists, double ranked, std::int64_t kept, LayerOps& ops,
                      OpId after);
// Attends to all held tokens and writes the weights, n_q·N·4 bytes; then adds them to running totals (`accumulates`),
// finds the smallest in each list and overwrites its slot. `lists`: rows that are ranked per sequence.
void attend_and_evict(const DecodeLayer& shape, bool accumulates, double lists, LayerOps& ops);
// The last part of attend_and_evict: finds the smallest in each of `rows` lists of scores and overwrites the slot of
// the evicted token.
void evict_least(const DecodeLayer& shape, double rows, LayerOps& ops, OpId after);

}  // namespace kvcast::policy
