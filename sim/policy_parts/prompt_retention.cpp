// The SnapKV family as a first stage: parameters, budgets of all layers, and cost.
#include <algorithm>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy_parts/prompt_eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

// The rule of a layer with its own budget.
std::unique_ptr<EvictionRule> rule_of(const PromptEviction& s, const LayerInput& layer,
                                      std::vector<double> preferences) {
  if (preferences.empty()) {  // replayed without a survey
    const LayerInput* const alone = &layer;
    preferences = survey_preferences(s, {&alone, 1});
  }
  const trace::TraceInfo& info = layer.info();
  return prompt_rule(s, layer, layer_budget(s, layer.layer().id(), info.n_layers, info.prompt_tokens, preferences));
}

class PromptRetention final : public Retention {
 public:
  explicit PromptRetention(const PromptEviction& setting) : s_(setting) {}

  bool per_query_head() const override { return s_.group == Group::kPerHead; }
  bool surveys(const Lengths&) const override { return s_.layers == LayerBudgets::kPreference; }
  void survey(std::span<const LayerInput* const> layers, const Lengths&) override {
    preferences_ = survey_preferences(s_, layers);
  }

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    const trace::TraceInfo& info = layer.info();
    const auto rule = rule_of(s_, layer, preferences_);
    return evict_prompt(*rule, s_.ends(info), per_query_head() ? info.n_q_heads : info.n_kv_heads);
  }

  std::int64_t kept(const Lengths& request) const override { return std::min(request.prompt_tokens, s_.budget); }

  double mean_kept(const config::Model& model, const Lengths& request) const override {
    const int layers = s_.profile ? s_.profile->n_layers : model.layers;
    if (layers == 0) return static_cast<double>(kept(request));
    double sum = 0;
    for (int l = 0; l < layers; ++l) sum += layer_kept(l, layers, request);
    return sum / layers;
  }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    const int layers = s_.profile ? s_.profile->n_layers : shape.model->layers;
    prompt_eviction_cost(s_, shape, layer_kept(std::min(shape.layer, layers - 1), layers, shape.request()), ops);
  }

  // Mean over layers and heads, if these have different budgets.
  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths&) const override { return {s_.block, s_.budget}; }

 private:
  // CAKE's layers differ by their attention; together they keep the requested number.
  double layer_kept(int layer, int layers, const Lengths& request) const {
    if (s_.layers == LayerBudgets::kPreference) return static_cast<double>(kept(request));
    const std::int64_t prompt = request.prompt_tokens;
    return static_cast<double>(std::min(prompt, layer_budget(s_, layer, layers, prompt, {})));
  }

  PromptEviction s_;
  std::vector<double> preferences_;
};

// A member that also evicts at every step.
class DecodeEviction final : public StepEviction {
 public:
  explicit DecodeEviction(const PromptEviction& setting)
      : StepEviction({.budget = setting.budget, .grows = setting.grows}, setting.block,
                     setting.group == Group::kPerHead),
        s_(setting) {}

  bool surveys(const Lengths&) const override { return s_.layers == LayerBudgets::kPreference; }
  void survey(std::span<const LayerInput* const> layers, const Lengths&) override {
    preferences_ = survey_preferences(s_, layers);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    prompt_eviction_cost(s_, shape, static_cast<double>(s_.budget), ops);
  }

  // Layers of different budgets grow in proportion.
  Growth growth(const Lengths& request) const override {
    const Growth growth = StepEviction::growth(request);
    const bool apart = s_.layers != LayerBudgets::kUniform;
    return s_.grows && apart && growth.attended < 1 ? Growth{.proportional = true} : growth;
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    attend_and_evict(shape, false, per_query_head_ ? shape.model->n_q_heads : shape.model->n_kv_heads, ops);
  }

 private:
  std::unique_ptr<EvictionRule> rule(const LayerInput& layer, const Lengths& request) const override {
    PromptEviction setting = s_;
    setting.prompt = request.prompt_tokens;
    return rule_of(setting, layer, preferences_);
  }

  PromptEviction s_;
  std::vector<double> preferences_;
};

}  // namespace

std::vector<std::int64_t> PromptEviction::ends(const trace::TraceInfo& info) const {
  return each_turn ? std::vector<std::int64_t>{info.prompt_tokens} : prompt_ends(info, block);
}

void check_pool(const ParameterValues& values, const PromptEviction& s) {
  if (s.pool_kernel % 2 == 0) {
    throw UserError(values.where("pool_kernel"), fmt::format("pool_kernel must be odd, found {}", s.pool_kernel));
  }
}

void check_window(const ParameterValues& values, const PromptEviction& s) {
  check_pool(values, s);
  if (s.window > s.budget) {
    throw UserError(values.where("window"),
                    fmt::format("{}: the window ({} tokens) exceeds the {} tokens that are kept of the prompt",
                                values.policy(), s.window, s.budget));
  }
  check_quota(values, {s.budget, s.sink, s.last()});
}

std::unique_ptr<Retention> evict_after_prompt(const PromptEviction& setting) {
  return std::make_unique<PromptRetention>(setting);
}

OpId window_scores_cost(const PromptEviction& s, const PrefillLayer& shape, double n, double heads, double rankings,
                        LayerOps& ops) {
  const Dims m(*shape.model);
  const double times = shape.batch, rows = times * heads * s.window;
  Kernel score{KernelClass::kScore, times * std::min(heads, m.kv_heads) * n * m.row() + rows * m.row(),
               rows * n * kScoreBytes};
  score.flops = 2 * rows * n * m.d;
  OpId op = ops.compute(Kind::kScore, "window scores", score, {ops.ready()});
  const double scored = n - s.window, pooled = times * rankings * scored * kScoreBytes;
  const bool variance = s.scores == TokenScores::kVariance;
  // Softmax and sums read the scores twice; CAKE's variance and its layers' entropy read them once more each.
  Kernel reduce{KernelClass::kReduce, (variance ? 4 : 2) * rows * n * kScoreBytes, pooled};
  reduce.flops = (variance ? 10 : 4) * rows * n;
  op = ops.compute(Kind::kScore, "softmax and sum", reduce, {op});
  Kernel pooling{KernelClass::kElementwise, pooled, pooled};
  pooling.flops = times * rankings * scored * s.pool_kernel;
  return ops.compute(Kind::kScore, "pool", pooling, {op});
}

void prompt_eviction_cost(const PromptEviction& s, const PrefillLayer& shape, double kept, LayerOps& ops) {
  const Dims m(*shape.model);
  const double n =
      tokens_to_rank(shape, s.layers == LayerBudgets::kErrors ? static_cast<std::int64_t>(kept) : s.budget);
  if (n == 0) return;
  const bool few = s.scores == TokenScores::kRetrievalHeads && s.heads != HeadBudgets::kAdaptive;
  const auto rankers = [&] {
    return static_cast<double>(ranking_heads(s, std::min(shape.layer, s.profile->n_layers - 1)).size());
  };
  const double heads = few ? std::min(rankers(), m.q_heads) : m.q_heads;
  const double rankings = few ? 1 : s.group == Group::kPerHead ? m.q_heads : m.kv_heads;
  OpId op = window_scores_cost(s, shape, n, heads, rankings, ops);
  const double scored = n - s.window, times = shape.batch;
  if (s.heads == HeadBudgets::kAdaptive) {
    const TopK layer{times, m.kv_heads * scored, m.kv_heads * (kept - s.window), kScoreBytes};
    op = ops.compute(Kind::kTopK, "top-k over heads", layer, {op});
  }
  const double lists = times * (s.group == Group::kPerHead ? m.q_heads : m.kv_heads);
  rank_and_compact(*shape.model, times * rankings, lists, scored, kept - s.window, kept, ops, op);
}

Fields<PromptEviction> prompt_eviction_fields(std::int64_t window, const char* pool, std::int64_t kernel,
                                              std::vector<std::string> groups) {
  using S = PromptEviction;
  Fields<S> fields;
  fields.add(budget_parameter("prompt tokens kept per KV head, including the window"), &S::budget)
      .add(window_parameter(window), &S::window)
      .add(pool_parameter(pool), &S::pool)
      .add(pool_kernel_parameter(kernel), &S::pool_kernel);
  if (!groups.empty()) fields.add(group_parameter(std::move(groups)), &S::group);
  return fields.add(block_parameter(), &S::block).add(sink_parameter(), &S::sink).add(recent_parameter(), &S::recent);
}

void add_retrieval_scores(Fields<PromptEviction>& fields) {
  using S = PromptEviction;
  fields
      .add(whole("retrieval_heads", 4, "query heads",
                 "semantic retrieval heads per layer, which rank tokens for all heads", 1, 10000),
           &S::retrieval_heads)
      .add(
          real_or("retrieval_share", "none",
                  "adaptive number of heads: also all heads whose share of the model's scores is above this; a profile "
                  "of ranks, as those of real models here, has no such shares",
                  0, 1),
          &S::retrieval_at_least)
      .add(choice("ranked_by", {"semantic", "retrieval"},
                  "head scores of the profile that choose these heads: CompressKV's, or traditional retrieval scores"),
           &S::ranked_by);
}

void add_error_budgets(Fields<PromptEviction>& fields) {
  using S = PromptEviction;
  fields
      .add(whole("least_layer_budget", 32, "tokens", "smallest budget of a layer, including the window", 1), &S::least)
      .add(whole("most_layer_factor", 3, "", "largest budget of a layer, as a multiple of the budget", 1, 1e6),
           &S::most_factor);
}

PromptEviction read_prompt_eviction(const Fields<PromptEviction>& fields, const ParameterValues& values,
                                    const PromptEviction& start) {
  PromptEviction s = fields.read(values, start);
  check_window(values, s);
  std::vector<std::string> kinds;  // required in the profile
  if (s.heads == HeadBudgets::kImportance) kinds.emplace_back("retrieval");
  if (s.layers == LayerBudgets::kErrors) {
    kinds.emplace_back("layer_errors");
    if (s.least < s.window) {
      throw UserError(values.where("least_layer_budget"),
                      fmt::format("{}: the budget of a layer ({} tokens) is smaller than the window ({})",
                                  values.policy(), s.least, s.window));
    }
  }
  if (s.scores == TokenScores::kRetrievalHeads) {
    kinds.push_back(s.ranked_by);
    if (s.block > 0 && s.heads != HeadBudgets::kUniform) {
      throw UserError(values.where("block"),
                      "with budgets by head, heads keep different tokens after a block, so that a ranking shared by "
                      "the layer is not defined");
    }
  }
  if (!kinds.empty()) s.profile = load_profile(values, kinds);
  return s;
}

void describe_prompt_eviction(Descriptor& d, const Fields<PromptEviction>& fields, const PromptEviction& start,
                              bool coupled) {
  d.parameters = fields.parameters();
  d.budget_rule = [fields, start](const ParameterValues& values, const Lengths& request) {
    const PromptEviction s = fields.read(values, start);
    BudgetRule rule =
        s.decode_eviction ? evicts_always({.budget = s.budget, .grows = s.grows}, request) : evicts_once(s.budget);
    if (s.heads == HeadBudgets::kAdaptive) rule.over = BudgetRule::Over::kLayer;
    if (s.layers != LayerBudgets::kUniform || s.heads == HeadBudgets::kImportance) rule.over = BudgetRule::Over::kModel;
    return rule;
  };
  d.needs = [fields, start, coupled](const ParameterValues& values, const Lengths&) {
    const PromptEviction s = fields.read(values, start);
    return ReplayNeeds{.coupled = coupled, .whole_prompt = s.block > 0, .window = s.window};
  };
  d.stages = [fields, start](const ParameterValues& values) {
    return Stages{evict_after_prompt(read_prompt_eviction(fields, values, start)), read_all()};
  };
}

void describe_decode_eviction(Descriptor& d, const Fields<PromptEviction>& fields, const PromptEviction& start) {
  d.make = [fields, start](const ParameterValues& values) -> std::unique_ptr<Policy> {
    const PromptEviction s = read_prompt_eviction(fields, values, start);
    const char* const missing = !s.decode_eviction ? "without decode_eviction all generated tokens stay"
                                : s.block > 0      ? "blocks of the prompt are cut to a fixed budget; leave out block"
                                                   : nullptr;
    if (s.grows && missing != nullptr)
      throw UserError(values.where("budget_grows"), fmt::format("budget_grows: {}", missing));
    if (s.decode_eviction) return std::make_unique<DecodeEviction>(s);
    return two_stages(evict_after_prompt(s), read_all());
  };
  d.stages = [name = d.name, stages = d.stages](const ParameterValues& values) {
    if (values.flag("decode_eviction")) {
      throw UserError(values.where("decode_eviction"),
                      fmt::format("{} is a first stage only without decode_eviction", name));
    }
    return stages(values);
  };
}

}  // namespace kvcast::policy
