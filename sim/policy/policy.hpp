// The interface of a policy: its selection, the cost of that selection, and its memory.
//
// A policy has selection and cost in one file. Selection sees one layer of a trace; cost sees counts and a model's
// shape. Neither knows hardware: costs are bytes, flops, launches, copies and their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "config/traffic.hpp"
#include "config/yaml.hpp"
#include "graph/op.hpp"
#include "policy/category.hpp"
#include "policy/layer_input.hpp"
#include "policy/layer_ops.hpp"
#include "policy/parameters.hpp"
#include "policy/selection.hpp"

namespace kvcast::policy {

// Bounds on the attended tokens of a head.
struct BudgetRule {
  // The quantity that the budget counts: tokens attended to at a step, tokens kept between steps, tokens selected in
  // addition to those always read, or all traffic of a step in units of one token's keys and values.
  enum class Counts { kAttended, kRetained, kSelected, kTraffic };
  // The scope of the rule: every head, or the mean over the heads of a layer or over all heads of the model.
  enum class Over { kHead, kLayer, kModel };
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

  std::int64_t tokens = 0;  // tokens that the budget pays for
  // Largest number of tokens in addition: sink and window, the current token, the rest of a page.
  std::int64_t extra = 0;
  std::int64_t slack = 0;  // difference between most() and least(); kAny: least() is 1
  // tokens and extra limit prompt tokens only, and every generated token is attended to as well.
  bool generated_on_top = false;
  Counts counts = Counts::kAttended;
  Over over = Over::kHead;

  // Largest and smallest number of tokens that a head attends to after `prompt` and `generated` tokens, the current one
  // included.
  std::int64_t most(std::int64_t prompt, std::int64_t generated) const {
    const std::int64_t held = tokens + extra;
    return generated_on_top ? std::min(prompt, held) + generated : std::min(prompt + generated, held);
  }
  std::int64_t least(std::int64_t prompt, std::int64_t generated) const {
    const std::int64_t n = most(prompt, generated);
    return slack < n ? n - slack : 1;
  }
};

// The word for a quantity in `budget_convention`.
const char* name(BudgetRule::Counts counts);

// Rules of policies that evict once, after the prompt, and of those that evict after each step.
inline BudgetRule evicts_once(std::int64_t budget) {
  return {.tokens = budget, .generated_on_top = true, .counts = BudgetRule::Counts::kRetained};
}
inline BudgetRule evicts_always(std::int64_t budget) {
  return {.tokens = budget, .extra = 1, .counts = BudgetRule::Counts::kRetained};
}
// Rule of a policy that reads everything up to `budget` tokens, and beyond that selects `chosen` tokens, of which up to
// `unfilled` may be missing because a page is not full.
inline BudgetRule chooses(std::int64_t budget, std::int64_t chosen, std::int64_t unfilled, std::int64_t prompt) {
  const std::int64_t most = prompt < budget ? budget : chosen;
  return {.tokens = most, .slack = most - chosen + unfilled};
}

// Selection in one layer of one sequence during decoding.
class Selector {
 public:
  virtual ~Selector() = default;
  // Called after the last prompt token: resets `resident` and sets `attended` of each head to the tokens resident on
  // the GPU.
  virtual void prefill(LayerSelection& resident) = 0;
  // Runs decode step t (t = 0, 1, ... in order). The query is at position prompt_tokens + t and may see keys up to its
  // own. Resets `out` and fills the lists and the counts that do not follow from them (count_lists).
  virtual void step(int t, LayerSelection& out) = 0;
  // Attention output of a query head in the last step, head_dim floats, if the policy computes more than a softmax over
  // the attended pairs (merged or averaged pairs); otherwise empty.
  virtual std::span<const float> output(int) const { return {}; }
  // Terms that the last step adds to the scaled logits of a query head's attended tokens, in their order (a sample is
  // divided by its probability of being drawn); empty if there are none.
  virtual std::span<const float> log_weights(int) const { return {}; }
};

// A prompt that is read in blocks, each followed by an eviction, in one layer.
struct PromptBlocks {
  std::int64_t tokens = 0;  // tokens of a block; 0: the whole prompt at once
  std::int64_t held = 0;    // largest number of tokens that a head keeps between blocks, mean over heads
  double whole_share = 0;   // share of heads exempt from eviction
  std::int64_t from = 0;    // nothing is evicted before this many tokens have been read
  double read = 1;          // share of a prompt read at once that enters the model at all; the rest is left out before
  // Tokens that a head keeps after `end` tokens have been read, mean over heads.
  double held_at(std::int64_t end) const;
};

// The share of causal attention over the prompt that a policy computes in one layer of a trace.
struct PromptAttention {
  bool sparse = false;     // false: all of it
  double density = 1;      // share of the query-key pairs, mean over query heads
  double recall_mass = 1;  // share of the softmax mass on these pairs, mean over prompt queries and query heads
};

// Change of counts with each token generated after the replayed steps: a replay covers some steps, lowering needs any
// context.
struct Growth {
  double attended = 0;  // 1 for full KV and eviction after the prompt; 0 for fixed budgets
  double scored = 0;    // 1 / p for a policy that scores pages of p tokens
  // Budget in tokens, for policies that attend to all tokens until they have as many: a replay at a shorter context
  // does not show how many they attend to later. 0: none, or one that the prompt decides.
  std::int64_t fill = 0;
  // Tokens that such a policy attends to once the budget is full; 0: as many as the budget.
  std::int64_t when_full = 0;
  bool proportional = false;  // the share of the context that is attended to stays, as under a threshold
  double cpu_attended = 0;    // as `attended`, of the tokens that a CPU reads; their candidates keep the ratio to them
  bool grows() const { return attended > 0 || cpu_attended > 0 || proportional; }
};

// Memory while decoding, for all layers and sequences together.
struct MemoryItem {
  graph::Pool pool = graph::Pool::kHbm;
  graph::Owner owner = graph::Owner::kKvCache;
  double bytes = 0;     // at a context of `tokens`
  bool shared = false;  // once a machine, whatever it serves
};
inline MemoryItem in_hbm(graph::Owner owner, double bytes, bool shared = false) {
  return {graph::Pool::kHbm, owner, bytes, shared};
}
inline MemoryItem in_dram(graph::Owner owner, double bytes) { return {graph::Pool::kDram, owner, bytes}; }
struct MemoryShape {
  const config::Model* model = nullptr;
  int batch = 1;
  std::int64_t tokens = 0;  // context of each sequence
  Lengths lengths;
  double attended = 0;  // mean KV pairs that a head attends to, from the replay
};

struct Descriptor;
struct Stages;  // policy_parts/stages.hpp
class Policy;

// All that the policy keeps: Policy::memory() for the model's layers of each format of the cache.
std::vector<MemoryItem> storage(const Policy& policy, const MemoryShape& shape);

class Policy {
 public:
  virtual ~Policy() = default;

  // A policy is made from its parameters alone. What depends on the lengths of a request is resolved for that request,
  // so that one policy serves requests of any lengths.
  //
  // Throws UserError if the parameters contradict each other for a request of these lengths.
  virtual void check(const Lengths& request) const;
  // Returns whether the budget covers all tokens of the request, which is then served as by the uncompressed cache
  // (full_when_covered). False for policies whose own work continues.
  virtual bool covers(const Lengths& /*request*/) const { return false; }

  // ---- selection
  //
  // Returns whether selections depend on other captured layers than their own, as of policies that split a budget over
  // layers. Only these are surveyed: they see all captured layers before any selection, and the layers stay until the
  // last one. Of others, a replay has one layer at a time.
  virtual bool surveys(const Lengths& /*request*/) const { return false; }
  virtual void survey(std::span<const LayerInput* const> layers, const Lengths& request);
  // The layer must outlive the selector. Throws UserError if the trace lacks data that the policy needs.
  virtual std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const = 0;
  // The same for a request as long as the trace.
  std::unique_ptr<Selector> selector(const LayerInput& layer) const;
  // First layers that this policy leaves uncompressed: a captured layer among them represents only these.
  virtual int dense_layers() const { return 0; }
  // Share of a model's layers that recall from the host, for policies that recall.
  virtual double recalling_share(const config::Model&) const { return 1; }
  // For policies with sparse attention over the prompt. Throws UserError if the trace lacks data that they need.
  virtual PromptAttention prompt_attention(const LayerInput&) const { return {}; }

  // ---- cost
  //
  // `tokens` is the same in all layers.
  virtual PromptBlocks prompt_blocks(const config::Model&, int /*layer*/, const Lengths& /*request*/) const {
    return {};
  }
  // Attention over a chunk of the prompt, from ops.ready() on. Returns the op that produces its output. By default all
  // pairs.
  virtual OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const;
  // Work after a layer's prefill attention (over a block, if the prompt is read in blocks): scoring the prompt,
  // building summaries, copying to the host.
  virtual void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const;
  // Work from the appended keys to the attention output of one layer of one decode step.
  virtual void decode_layer(const DecodeLayer& shape, LayerOps& ops) const = 0;
  virtual std::vector<MemoryItem> memory(const MemoryShape& shape) const = 0;
  virtual Growth growth(const Lengths& /*request*/) const { return {}; }

  // Returns whether this is the uncompressed cache (Descriptor::uncompressed).
  bool uncompressed() const { return uncompressed_; }
  // Returns whether each query reads tokens of its own, rather than all that is kept (Descriptor::selects).
  virtual bool selects() const { return selects_; }

 private:
  friend std::unique_ptr<Policy> make_policy(const Descriptor&, const config::Node&, std::shared_ptr<const Profile>);
  bool uncompressed_ = false, selects_ = false;
};

// Requirements on a sample trace so that a replay over it represents the whole model (policies/replay_needs.hpp).
struct ReplayNeeds {
  bool coupled =
      false;  // heads share a budget or a selection: the trace needs all kinds of heads in their usual shares
  bool whole_prompt = false;  // the policy reads all queries of the prompt
  bool in_blocks = false;     // the prompt is read in blocks, each followed by an eviction
  bool each_turn = false;     // it selects from the whole prompt again at each turn's question
  std::int64_t window = 0;    // number of last prompt queries that it reads
  bool rounds = false;        // it rounds the cache, which the attention on a text's targets does not show either
  std::string unseen = {};    // reason why a replay does not show the policy's loss; empty if it does
};

// The part of a sequence that later prompts can use again under a policy, and the reason.
struct ReuseClass {
  config::SchedulerRules::Reuse reuse = config::SchedulerRules::Reuse::kNone;
  std::string reason;
};

// A registered policy: the text of `kvcast policies`, and how to make one.
struct Descriptor {
  std::string name;
  std::string sentence;  // description in one sentence
  Category category = Category::kNone;
  std::string paper;
  std::vector<Parameter> parameters;
  std::optional<BudgetRule::Counts> own_budget_counts = {};  // what `budget` counts, if not as in its category
  std::string budget_convention;                             // which of these; empty without a budget
  // The convention as a rule for a request; empty: exactly `budget` tokens. Called only if a budget is given.
  std::function<BudgetRule(const ParameterValues&, const Lengths&)> budget_rule;
  std::vector<std::string> formulas;     // traffic and storage, per layer and sequence
  std::vector<std::string> differences;  // from the paper or its released code
  std::function<std::unique_ptr<Policy>(const ParameterValues&)> make;
  // The policy as two stages that other policies can use; empty if it has none. `make` follows from it if it is not
  // given.
  std::function<Stages(const ParameterValues&)> stages;
  // Needs for a request by the policy's own parameters; empty: none. Nested policies add theirs.
  std::function<ReplayNeeds(const ParameterValues&, const Lengths&)> needs;
  std::vector<std::string_view> uncompressed_layers;  // parameters that leave layers of the model uncompressed
  // Tokens that one recall from the host fetches, 0 if the parameters leave nothing to recall; empty: the policy never
  // recalls, or has its own cache. It adds the parameter page_cache (policy_parts/host_pages.hpp).
  std::function<std::int64_t(const ParameterValues&)> recall_page;
  bool for_latent = false;     // defined for latent attention, where all heads share one cached vector
  bool packs_cache = false;    // stores the cache in its own format
  bool prunes_prompt = false;  // tokens never enter the model, so that no layer can be left uncompressed
  // The way in which engines that have the policy read prompts, and where it says so if not in chunks.
  config::SchedulerRules::Prefill prefill = config::SchedulerRules::Prefill::kChunked;
  std::string prefill_source = {};
  std::optional<ReuseClass> own_reuse = {};  // if not that of its category
  std::string_view no_ends = {};             // why the policy takes no sink or recent tokens, where it takes none

  ReuseClass reuse() const;
  // Returns whether it is the uncompressed cache, whose kernels every engine has.
  bool uncompressed() const { return category == Category::kNone; }
  // Returns whether each query chooses from the cache anew.
  bool selects() const;
  // The tokens that `budget` counts: those kept if the policy drops others, those selected if a CPU attends to them,
  // otherwise those attended to.
  BudgetRule::Counts budget_counts() const;
  // "attended: ...": what the budget counts; empty without a budget.
  std::string budget_text() const;
};

// The policy's rule for a request; nothing if the parameters give no budget.
std::optional<BudgetRule> budget_rule(const Descriptor& descriptor, const ParameterValues& values,
                                      const Lengths& request);
// Checks the parameters against the descriptor and makes the policy. `profile`: head profile to use instead of the
// file's, for policies that need one.
std::unique_ptr<Policy> make_policy(const Descriptor& descriptor, const config::Node& parameters,
                                    std::shared_ptr<const Profile> profile = {});

}  // namespace kvcast::policy
