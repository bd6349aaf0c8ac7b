// Eviction at the end of the prompt by its last queries: the SnapKV family. Its members differ in the scores of tokens,
// in the distribution of the budget over layers, and in that of a layer's budget over its heads; all combinations work.
#pragma once

#include <algorithm>
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
  kRetrievalHeads,  // CompressKV: window sums of some query heads, each pooled, then averaged; one ranking per layer
};
enum class LayerBudgets { kUniform, kPyramid, kSmoothPyramid, kErrors, kPreference };
enum class HeadBudgets { kUniform, kAdaptive, kImportance };

struct PromptEviction {
  std::int64_t budget = 0;  // tokens kept per head, including the window, on average over layers and heads
  int window = 0;
  Pooling pool = Pooling::kMax;
  int pool_kernel = 1;
  Group group = Group::kMeanWeights;  // a reduction of weights, or kPerHead
  std::int64_t block = 0;             // tokens of a prompt block; 0: the whole prompt at once
  std::int64_t sink = 0, recent = 0;  // first and last tokens that a head keeps as far as its own budget goes

  // Nothing is evicted after earlier turns: the last queries select from the whole prompt (RocketKV-MT).
  bool each_turn = false;

  TokenScores scores = TokenScores::kWindow;
  double gamma = 0;                               // kVariance
  bool decode_eviction = false;                   // also ranks by the weights of each step ...
  bool grows = false;                             // ... to a budget that keeps its share of all tokens seen
  std::int64_t prompt = 0;                        // tokens of the prompt, for such a budget
  std::string ranked_by = "semantic";             // kRetrievalHeads: the kind of score in the profile
  int retrieval_heads = 0;                        // kRetrievalHeads: at least this many per layer ...
  std::optional<double> retrieval_at_least = {};  // ... and all heads with a larger share of the model's scores

  LayerBudgets layers = LayerBudgets::kUniform;
  std::int64_t beta = 20;                   // kPyramid, kSmoothPyramid
  std::int64_t least = 0, most_factor = 0;  // kErrors: in tokens; as a multiple of the budget
  double tau1 = 1, tau2 = 1;                // kPreference: entropy^(1/tau1) · variance^(1/tau2)

  HeadBudgets heads = HeadBudgets::kUniform;
  Adaptive adaptive = {};                         // kAdaptive; the layer's budget sets its base
  double pool_beta = 1.01, importance_power = 1;  // kImportance
  bool window_in_base = false;                    // kImportance: base = budget rather than budget − window

  std::shared_ptr<const Profile> profile = {};  // kRetrievalHeads (ranked_by), kErrors, kImportance (retrieval)

  std::int64_t last() const { return std::max<std::int64_t>(window, recent); }  // tokens that stay with the window
  // Ends of the pieces of the prompt that are each followed by an eviction (prompt_ends).
  std::vector<std::int64_t> ends(const trace::TraceInfo& info) const;
};

// Parameters of the family (budget, window, pool, pool_kernel, block, and group unless `groups` is empty), of
// CompressKV's scores, and of its layer budgets. Members add their own.
Fields<PromptEviction> prompt_eviction_fields(std::int64_t window, const char* pool, std::int64_t kernel,
                                              std::vector<std::string> groups = {"mean_weights", "sum_weights",
                                                                                 "max_weights", "per_head"});
void add_retrieval_scores(Fields<PromptEviction>& fields);
void add_error_budgets(Fields<PromptEviction>& fields);
// Reads the parameters into a copy of `start`, with the head profile that the setting needs. Throws UserError if they
// contradict each other.
PromptEviction read_prompt_eviction(const Fields<PromptEviction>& fields, const ParameterValues& values,
                                    const PromptEviction& start);
// Completes the descriptor of a member: parameters, rule, stages and needs of a replay. start: the fixed part of the
// member's setting; coupled: its heads or layers share a budget or a ranking.
void describe_prompt_eviction(Descriptor& descriptor, const Fields<PromptEviction>& fields,
                              const PromptEviction& start = {}, bool coupled = true);

// Completes the descriptor of a member with the flag decode_eviction, which also evicts at every step: the cache stays
// as large as after the prompt. Call it after describe_prompt_eviction.
void describe_decode_eviction(Descriptor& descriptor, const Fields<PromptEviction>& fields,
                              const PromptEviction& start = {});

// Throws UserError if the pooling kernel is even.
void check_pool(const ParameterValues& values, const PromptEviction& setting);
// Throws UserError if the pooling kernel is even or the budget is smaller than the sink, the window and recent tokens.
void check_window(const ParameterValues& values, const PromptEviction& setting);

// The first stage of a member.
std::unique_ptr<Retention> evict_after_prompt(const PromptEviction& setting);

// The query heads of a layer that rank for all heads (kRetrievalHeads): the best by score (ties: the lower), and all
// above a share of the whole model's scores.
std::vector<int> ranking_heads(const PromptEviction& setting, int layer);
// Tokens that a layer's heads keep on average, including the window, of a prompt that is longer; preferences: those of
// kPreference for all layers. A prompt of at most the mean budget is kept whole in every layer, except by kErrors:
// CompressKV's listing 1 compares it with the layer's own budget.
std::int64_t layer_budget(const PromptEviction& setting, int layer, int layers, std::int64_t prompt,
                          const std::vector<double>& preferences);
// CAKE's preferences for all layers of the model; a layer that was not captured has those of the nearest captured one.
std::vector<double> survey_preferences(const PromptEviction& setting, std::span<const LayerInput* const> layers);
// The eviction rule of one layer.
std::unique_ptr<EvictionRule> prompt_rule(const PromptEviction& setting, const LayerInput& layer, std::int64_t budget);
// Adds the window's scores of `n` tokens: by `heads` query heads, reduced and pooled to `rankings` rows of a sequence.
OpId window_scores_cost(const PromptEviction& setting, const PrefillLayer& shape, double n, double heads,
                        double rankings, LayerOps& ops);
// Adds the work after a layer's prompt; the layer's heads keep `kept` tokens on average.
void prompt_eviction_cost(const PromptEviction& setting, const PrefillLayer& shape, double kept, LayerOps& ops);

}  // namespace kvcast::policy
