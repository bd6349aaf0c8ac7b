// What a policy is: how it selects, what its selection costs, what it keeps in memory.
//
// select and cost stand side by side in one file a policy. Selection sees one layer of a trace; cost sees counts and a
// model's shape. Neither knows hardware: costs are bytes, flops, launches, copies and their order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "config/yaml.hpp"
#include "graph/op.hpp"
#include "policy/budget_rule.hpp"
#include "policy/layer_input.hpp"
#include "policy/layer_ops.hpp"
#include "policy/parameters.hpp"
#include "policy/selection.hpp"

namespace kvcast::policy {

// Lengths that a policy's parameters are fixed by at the end of the prompt.
struct Lengths {
  std::int64_t prompt_tokens = 0;
  std::int64_t decode_steps = 0;
  std::int64_t bound() const { return prompt_tokens + decode_steps; }  // S_max
};

// One layer of one sequence as it is decoded.
class Selector {
 public:
  virtual ~Selector() = default;
  // After the last prompt token: `attended` of each head becomes what is resident on the GPU; resets `resident` first.
  virtual void prefill(LayerSelection& resident) = 0;
  // Decode step t, t = 0, 1, ... in order; the query stands at position prompt_tokens + t and may see keys up to its
  // own. Resets `out` and fills the lists and the counts that do not follow from them (count_lists).
  virtual void step(int t, LayerSelection& out) = 0;
  // Attention output of a query head in the last step, head_dim floats, of a policy that does more than a softmax over
  // the pairs attended to (merged or averaged pairs); empty where it does no more.
  virtual std::span<const float> output(int) const { return {}; }
  // What the last step adds to the scaled logits of what a query head attends to, in that order, where a policy does
  // (a sample is divided by its chance of being drawn); empty where it adds nothing.
  virtual std::span<const float> log_weights(int) const { return {}; }
};

// A prompt that is read in blocks, each followed by an eviction, in one layer.
struct PromptBlocks {
  std::int64_t tokens = 0;  // a block; 0: the whole prompt at once
  std::int64_t held = 0;    // that a head keeps at most from one block to the next, mean over heads
  double whole_share = 0;   // of the heads: keep everything nevertheless
  std::int64_t from = 0;    // nothing is evicted before so many tokens have been read
  // Tokens that a head holds, mean over heads, once `end` have been read.
  double held_at(std::int64_t end) const;
};

// How much of causal attention over the prompt a policy computes in one layer of a trace.
struct PromptAttention {
  bool sparse = false;     // false: all of it
  double density = 1;      // share of the query-key pairs, mean over query heads
  double recall_mass = 1;  // share of the softmax mass on these pairs, mean over prompt queries and query heads
};

// How counts change with each token generated after the replayed steps: replay covers some steps, lowering needs any
// context.
struct Growth {
  double attended = 0;  // full, prompt-end eviction: 1; fixed budgets: 0
  double scored = 0;    // a policy that scores pages of p tokens: 1 / p
};

// Storage while decoding, all layers and sequences together.
struct MemoryItem {
  graph::Pool pool = graph::Pool::kHbm;
  std::string owner;  // "KV cache", "page summaries", ...
  double bytes = 0;   // at `tokens` of context
};
struct MemoryShape {
  const config::Model* model = nullptr;
  int batch = 1;
  std::int64_t tokens = 0;  // context a sequence
  Lengths lengths;
  double attended = 0;  // mean KV pairs a head attends to, from the replay
};

class Policy {
 public:
  virtual ~Policy() = default;

  // ---- selection
  // All captured layers before any selection, for policies that split a budget over layers. Default: nothing.
  virtual void survey(std::span<const LayerInput* const> layers);
  // The layer must outlive the selector. UserError where the trace lacks what the policy needs.
  virtual std::unique_ptr<Selector> selector(const LayerInput& layer) const = 0;
  // Layers at the start that this policy leaves uncompressed: a captured layer below this stands for those alone.
  virtual int dense_layers() const { return 0; }
  // Share of a model's layers that recall from the host, for policies that recall at all.
  virtual double recalling_share(const config::Model&) const { return 1; }
  // For policies whose attention over the prompt is sparse. UserError where the trace lacks what it needs.
  virtual PromptAttention prompt_attention(const LayerInput&) const { return {}; }

  // ---- cost, batch sequences at once
  // `tokens` is the same in all layers.
  virtual PromptBlocks prompt_blocks(const config::Model&, int /*layer*/) const { return {}; }
  // Attention over a chunk of the prompt, from ops.ready(); the op after which its output exists. Default: all pairs.
  virtual graph::OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const;
  // Work after a layer's prefill attention (over a block, where the prompt comes in blocks): scoring the prompt,
  // building summaries, copying to the host.
  virtual void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const;
  // Work from the appended keys to the attention output of one layer of one decode step.
  virtual void decode_layer(const DecodeLayer& shape, LayerOps& ops) const = 0;
  virtual std::vector<MemoryItem> memory(const MemoryShape& shape) const = 0;
  virtual Growth growth() const { return {}; }
};

struct Stages;  // policy_parts/stages.hpp

// What a sample trace must hold so that a replay over it stands for the whole model (policies/replay_needs.hpp).
struct ReplayNeeds {
  bool coupled = false;       // heads share a budget or a choice: heads of all kinds in their usual shares
  bool whole_prompt = false;  // the policy looks at all queries of the prompt
  bool in_blocks = false;     // the prompt is read in blocks, each followed by an eviction
  bool each_turn = false;     // it chooses from the whole prompt again at each turn's question
  std::int64_t window = 0;    // it looks at so many of the prompt's last queries
  std::string unseen = {};    // why a replay does not show what the policy loses; empty where it does
};

// A registered policy: what `kvcast policies` prints and how one is made.
struct Descriptor {
  std::string name;
  std::string sentence;  // one honest sentence
  std::string category;  // none, drop, retrieval (GPU), retrieval (host), ...
  std::string paper;
  std::vector<Parameter> parameters;
  std::string budget_convention;  // what `budget` counts, in words; empty without a budget
  // The same as a rule; empty: exactly `budget` tokens. Only asked where a budget is given.
  std::function<BudgetRule(const ParameterValues&, const Lengths&)> budget_rule;
  std::vector<std::string> formulas;     // traffic and storage, per layer and sequence
  std::vector<std::string> differences;  // from the paper or its released code
  std::function<std::unique_ptr<Policy>(const ParameterValues&, const Lengths&)> make;
  // The same as two stages that other policies can put into their frames; empty where it is none. `make` follows from
  // it where it is not given.
  std::function<Stages(const ParameterValues&, const Lengths&)> stages;
  // By its own parameters; empty: nothing. Policies inside it add theirs.
  std::function<ReplayNeeds(const ParameterValues&, const Lengths&)> needs;
  std::vector<std::string_view> uncompressed_layers;  // parameters that leave layers of the model uncompressed
  // Tokens that a recall from the host brings at once, 0 where the parameters leave nothing to recall; empty: the
  // policy never recalls, or has a cache of its own. It gives the policy the parameter page_cache
  // (policy_parts/host_pages.hpp).
  std::function<std::int64_t(const ParameterValues&)> recall_page;
  bool for_latent = false;   // defined for latent attention, where all heads share one cached vector
  bool packs_cache = false;  // has a format of its own for the cache
};

// The policy's rule; none where the parameters give no budget.
std::optional<BudgetRule> budget_rule(const Descriptor& descriptor, const ParameterValues& values,
                                      const Lengths& lengths);
// Checks the parameters against the descriptor and makes the policy. `profile`: scores of attention heads in place of a
// file's, for policies that need them.
std::unique_ptr<Policy> make_policy(const Descriptor& descriptor, const config::Node& parameters,
                                    const Lengths& lengths, std::shared_ptr<const Profile> profile = {});

}  // namespace kvcast::policy
