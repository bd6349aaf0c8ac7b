// Eviction by score: what a head loses is gone for good. The prompt comes whole or in blocks, each followed by an
// eviction; a decode step attends first and evicts after.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policy/weights.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {

// What an eviction must leave in each head: `budget` tokens, among them the first `sink` of the sequence and the last
// `recent` of the list.
struct Quota {
  std::int64_t budget = 0;
  std::int64_t sink = 0, recent = 0;
};

// Indices into `held` of what stays: the protected tokens, then the best of the others; ties go to the lower position.
// scores: one a held token. All stay where there are at most quota.budget.
void choose_stay(const Held& held, std::span<const float> scores, const Quota& quota, std::vector<std::int32_t>& stay);
// Leaves exactly these.
void keep_only(Held& held, const std::vector<std::int32_t>& stay);

// Ranks and evicts in one layer of one sequence. One list a selecting head: KV heads, or query heads.
class EvictionRule {
 public:
  virtual ~EvictionRule() = default;
  // Prompt tokens first … end − 1 have been appended to every list, and their queries have attended to it.
  virtual void after_block(std::int64_t first, std::int64_t end, std::vector<Held>& held) = 0;
  // Step t has attended to the lists, its own token included. Default: nothing leaves after the prompt.
  virtual void after_step(int t, std::vector<Held>& held);
  // As Selector::output, of the step last passed to after_step.
  virtual std::span<const float> output(int) const { return {}; }
};

// Where the pieces of the prompt end that are each followed by an eviction: after each `block` tokens of a turn (0:
// none) and after each turn. The turns are the trace's, of a conversation that the prompt holds; what the model
// answered is a part of its turn, for a trace does not say where the answer begins.
std::vector<std::int64_t> prompt_ends(const trace::TraceInfo& info, std::int64_t block);
// The tokens that each of `heads` lists holds after a prompt whose pieces end there.
std::vector<Held> evict_prompt(EvictionRule& rule, std::span<const std::int64_t> ends, int heads);

// A selector that runs `rule` over the prompt, then attends to everything held at each step and lets the rule evict.
// `per_query_head`: a list a query head.
std::unique_ptr<Selector> evicting_selector(const LayerInput& layer, std::unique_ptr<EvictionRule> rule,
                                            std::int64_t block, bool per_query_head);

// UserError where sink and recent together exceed the budget.
void check_quota(const ParameterValues& values, const Quota& quota);

// ---- costs
// Tokens that a head has when the eviction after this block starts, for a cache of `budget`; 0 where it evicts none.
double tokens_to_rank(const PrefillLayer& shape, std::int64_t budget);
// Picks the best `chosen` of `ranked` scores in `rows` rows and moves the `kept` tokens of each KV list together.
void rank_and_compact(const config::Model& model, double rows, double lists, double ranked, double chosen, double kept,
                      LayerOps& ops, graph::OpId after);
// Attention over what is held that also writes its weights, n_q·N·4 bytes; then sums them into running totals
// (`accumulates`), finds the least of each list and overwrites its slot. `lists`: rows that are ranked a sequence.
void attend_and_evict(const DecodeLayer& shape, bool accumulates, double lists, LayerOps& ops);
// The end of that: the least of each of `rows` lists of scores, and what was evicted gives its slot away.
void evict_least(const DecodeLayer& shape, double rows, LayerOps& ops, graph::OpId after);

}  // namespace kvcast::policy
