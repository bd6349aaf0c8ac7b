// Eviction at the end of the prompt by its last queries: the SnapKV family. What makes a member is how tokens are
// scored, how the budget is shared out over layers, and how a layer's budget over its heads; any combination works.
#pragma once

#include <memory>
#include <optional>

#include "policy/fields.hpp"
#include "policy/profile.hpp"
#include "policy/window.hpp"
#include "policy_parts/budgets.hpp"
#include "policy_parts/eviction.hpp"

namespace kvcast::policy {

enum class TokenScores {
  kWindow,          // SnapKV: sum of the window's weights, reduced over the group, then pooled
  kVariance,        // CAKE: mean + gamma · variance over the window's rows, reduced, pooled
  kRetrievalHeads,  // CompressKV: window sums of some query heads, each pooled, their mean; one ranking a layer
};
enum class LayerBudgets { kUniform, kPyramid, kSmoothPyramid, kErrors, kPreference };
enum class HeadBudgets { kUniform, kAdaptive, kImportance };

struct PromptEviction {
  std::int64_t budget = 0;  // tokens that stay a head, window included, on average over layers and heads
  int window = 0;
  Pool pool = Pool::kMax;
  int pool_kernel = 1;
  Group group = Group::kMeanWeights;  // of weights, or kPerHead
  std::int64_t block = 0;             // 0: the prompt at once

  // Nothing was evicted after earlier turns: the whole prompt is chosen from, by its last queries (RocketKV-MT).
  bool each_turn = false;

  TokenScores scores = TokenScores::kWindow;
  double gamma = 0;                               // kVariance
  bool decode_eviction = false;                   // ranks by each step's own weights, too (CAKE)
  int retrieval_heads = 0;                        // kRetrievalHeads: that many a layer at least ...
  std::optional<double> retrieval_at_least = {};  // ... and all whose share of the model's scores is above this

  LayerBudgets layers = LayerBudgets::kUniform;
  std::int64_t beta = 20;                   // kPyramid, kSmoothPyramid
  std::int64_t least = 0, most_factor = 0;  // kErrors: tokens; times budget
  double tau1 = 1, tau2 = 1;                // kPreference: entropy^(1/tau1) · variance^(1/tau2)

  HeadBudgets heads = HeadBudgets::kUniform;
  Adaptive adaptive = {};                         // kAdaptive; its base is set by the layer's budget
  double pool_beta = 1.01, importance_power = 1;  // kImportance
  bool window_in_base = false;                    // kImportance: base = budget, not budget − window

  std::shared_ptr<const Profile> profile = {};  // kRetrievalHeads (semantic), kErrors, kImportance (retrieval)

  // The ends of the pieces of the prompt that are each followed by an eviction (prompt_ends).
  std::vector<std::int64_t> ends(const trace::TraceInfo& info) const;
};

// Parameters of the family: budget, window, pool, pool_kernel, group (unless `groups` is empty) and block; of
// CompressKV's scores; of its layer budgets. A member adds its own to them.
Fields<PromptEviction> prompt_eviction_fields(std::int64_t window, const char* pool, std::int64_t kernel,
                                              std::vector<std::string> groups = {"mean_weights", "sum_weights",
                                                                                 "max_weights", "per_head"});
void add_retrieval_scores(Fields<PromptEviction>& fields);
void add_error_budgets(Fields<PromptEviction>& fields);
// What the parameters say, over what `start` fixes, with the profile that the setting asks for. UserError where they
// contradict each other.
PromptEviction read_prompt_eviction(const Fields<PromptEviction>& fields, const ParameterValues& values,
                                    const PromptEviction& start);
// Makes a descriptor that of a member: its parameters, its rule, its stages and what a replay of it needs. start: what
// makes it this member; coupled: its heads or layers share a budget or a ranking.
void describe_prompt_eviction(Descriptor& descriptor, const Fields<PromptEviction>& fields,
                              const PromptEviction& start = {}, bool coupled = true);

// UserError where the pooling kernel is even.
void check_pool(const ParameterValues& values, const PromptEviction& setting);
// The same, and where the setting's budget cannot hold its window.
void check_window(const ParameterValues& values, const PromptEviction& setting);

// As a first stage.
std::unique_ptr<Retention> evict_after_prompt(const PromptEviction& setting);

// Tokens that stay in a layer's heads on average, window included; preferences: kPreference's, of all layers.
std::int64_t layer_budget(const PromptEviction& setting, int layer, int layers, std::int64_t prompt,
                          const std::vector<double>& preferences);
// CAKE's preferences of captured layers, stood for by the nearest captured one, for all layers of the model.
std::vector<double> survey_preferences(const PromptEviction& setting, std::span<const LayerInput* const> layers);
// The rule of one layer.
std::unique_ptr<EvictionRule> prompt_rule(const PromptEviction& setting, const LayerInput& layer, std::int64_t budget);
// Work after a layer's prompt; the tokens that the layer's heads keep on average are `kept`.
void prompt_eviction_cost(const PromptEviction& setting, const PrefillLayer& shape, double kept, LayerOps& ops);

}  // namespace kvcast::policy
