// The SnapKV family as a first stage: parameters, budgets of all layers, and cost.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy/prompt_eviction.hpp"
#include "policy/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

using graph::Kind;
using graph::Lane;

class PromptRetention final : public Retention {
 public:
  explicit PromptRetention(const PromptEviction& setting) : s_(setting) {}

  bool per_query_head() const override { return s_.group == Group::kPerHead; }
  void survey(std::span<const LayerInput* const> layers) override { preferences_ = survey_preferences(s_, layers); }

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer) const override {
    const trace::TraceInfo& info = layer.info();
    std::vector<double> preferences = preferences_;
    if (preferences.empty()) {  // replayed alone, without a survey
      const LayerInput* const alone = &layer;
      preferences = survey_preferences(s_, {&alone, 1});
    }
    const std::int64_t budget = info.prompt_tokens <= s_.budget ? s_.budget
                                                                : layer_budget(s_, layer.layer().id(), info.n_layers,
                                                                               info.prompt_tokens, preferences);
    const auto rule = prompt_rule(s_, layer, budget, false);
    return evict_prompt(*rule, info.prompt_tokens, s_.block, per_query_head() ? info.n_q_heads : info.n_kv_heads);
  }

  std::int64_t kept(std::int64_t prompt) const override { return std::min(prompt, s_.budget); }

  double mean_kept(const config::Model& model, std::int64_t prompt) const override {
    const int layers = s_.profile ? s_.profile->n_layers : model.layers;
    if (prompt <= s_.budget || layers == 0) return static_cast<double>(kept(prompt));
    double sum = 0;
    for (int l = 0; l < layers; ++l) sum += layer_kept(l, layers, prompt);
    return sum / layers;
  }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    if (shape.prompt_tokens <= s_.budget) return;
    const int layers = s_.profile ? s_.profile->n_layers : shape.model->layers;
    prompt_eviction_cost(s_, shape, layer_kept(std::min(shape.layer, layers - 1), layers, shape.prompt_tokens), ops);
  }

  // Layers and heads with budgets of their own: their mean.
  PromptBlocks prompt_blocks(const config::Model&, int) const override { return {s_.block, s_.budget}; }

 private:
  // CAKE's layers differ by what they attend to; together they keep what is asked for.
  double layer_kept(int layer, int layers, std::int64_t prompt) const {
    if (s_.layers == LayerBudgets::kPreference) return static_cast<double>(s_.budget);
    return static_cast<double>(std::min(prompt, layer_budget(s_, layer, layers, prompt, {})));
  }

  PromptEviction s_;
  std::vector<double> preferences_;
};

}  // namespace

void check_pool(const ParameterValues& values) {
  if (values.integer("pool_kernel") % 2 == 0) {
    throw UserError(values.where("pool_kernel"),
                    fmt::format("pool_kernel must be odd, found {}", values.integer("pool_kernel")));
  }
}

void check_window(const ParameterValues& values, std::int64_t budget) {
  check_pool(values);
  if (values.integer("window") > budget) {
    throw UserError(values.where("window"),
                    fmt::format("the window of {} tokens does not fit into the {} tokens that stay of the prompt",
                                values.integer("window"), budget));
  }
}

std::unique_ptr<Retention> evict_after_prompt(const PromptEviction& setting) {
  return std::make_unique<PromptRetention>(setting);
}

void prompt_eviction_cost(const PromptEviction& s, const PrefillLayer& shape, double kept, LayerOps& ops) {
  const Dims m(*shape.model);
  const double n = tokens_to_rank(shape, s.budget);
  if (n == 0) return;
  const bool few = s.scores == TokenScores::kRetrievalHeads && s.heads != HeadBudgets::kAdaptive;
  const double heads = few ? std::min<double>(s.retrieval_heads, m.q_heads) : m.q_heads;
  const double rankings = few ? 1 : s.group == Group::kPerHead ? m.q_heads : m.kv_heads;
  const double times = shape.batch, rows = times * heads * s.window;
  graph::Kernel score{graph::KernelClass::kScore, times * std::min(heads, m.kv_heads) * n * m.row() + rows * m.row(),
                      rows * n * kScoreBytes};
  score.flops = 2 * rows * n * m.d;
  graph::OpId op = ops.kernel(Lane::kCompute, Kind::kScore, "window scores", score, {ops.ready()});
  const double scored = n - s.window, pooled = times * rankings * scored * kScoreBytes;
  const bool variance = s.scores == TokenScores::kVariance;
  // Softmax and sums read the scores twice; CAKE's variance and its layers' entropy once more each.
  graph::Kernel reduce{graph::KernelClass::kReduce, (variance ? 4 : 2) * rows * n * kScoreBytes, pooled};
  reduce.flops = (variance ? 10 : 4) * rows * n;
  op = ops.kernel(Lane::kCompute, Kind::kScore, "softmax and sum", reduce, {op});
  graph::Kernel pooling{graph::KernelClass::kElementwise, pooled, pooled};
  pooling.flops = times * rankings * scored * s.pool_kernel;
  op = ops.kernel(Lane::kCompute, Kind::kScore, "pool", pooling, {op});
  if (s.heads == HeadBudgets::kAdaptive) {
    const graph::TopK layer{times, m.kv_heads * scored, m.kv_heads * (kept - s.window), kScoreBytes};
    op = ops.kernel(Lane::kCompute, Kind::kTopK, "top-k over heads", layer, {op});
  }
  const double lists = times * (s.group == Group::kPerHead ? m.q_heads : m.kv_heads);
  rank_and_compact(*shape.model, times * rankings, lists, scored, kept - s.window, kept, ops, op);
}

std::vector<Parameter> prompt_eviction_parameters(std::int64_t window, const char* pool, std::int64_t kernel) {
  std::vector<Parameter> list = {budget_parameter("prompt tokens kept a KV head, the window included"),
                                 window_parameter(window)};
  for (Parameter& p : pool_parameters(pool, kernel)) list.push_back(std::move(p));
  list.push_back(group_parameter({"mean_weights", "sum_weights", "max_weights", "per_head"}));
  list.push_back(block_parameter());
  return list;
}

PromptEviction read_prompt_eviction(const ParameterValues& values) {
  PromptEviction setting;
  setting.budget = values.integer("budget");
  check_window(values, setting.budget);
  setting.window = static_cast<int>(values.integer("window"));
  setting.pool = parse_pool(values.text("pool"));
  setting.pool_kernel = static_cast<int>(values.integer("pool_kernel"));
  if (values.all().contains("group")) setting.group = parse_group(values.text("group"));
  setting.block = read_block(values);
  return setting;
}

ReplayNeeds prompt_eviction_needs(const ParameterValues& values, bool coupled) {
  return {.coupled = coupled, .whole_prompt = read_block(values) > 0, .window = values.integer("window")};
}

std::vector<Parameter> retrieval_score_parameters() {
  return {whole("retrieval_heads", 4, "query heads", "semantic retrieval heads a layer that rank tokens for all heads",
                1, 10000),
          real_or("retrieval_share", "none",
                  "adaptive number of heads: also all whose share of the model's scores is above this", 0, 1)};
}

void read_retrieval_scores(const ParameterValues& values, PromptEviction& setting) {
  setting.scores = TokenScores::kRetrievalHeads;
  setting.retrieval_heads = static_cast<int>(values.integer("retrieval_heads"));
  if (!values.is_text("retrieval_share")) setting.retrieval_at_least = values.number("retrieval_share");
  if (setting.block > 0 && setting.heads != HeadBudgets::kUniform) {
    throw UserError(values.where("block"),
                    "heads with budgets of their own hold different tokens after a block: a ranking shared by the "
                    "layer is not defined for them");
  }
}

std::vector<Parameter> error_budget_parameters() {
  return {whole("least_layer_budget", 32, "tokens", "what every layer gets at least, window included", 1),
          whole("most_layer_factor", 3, "", "what a layer gets at most, in budgets", 1, 1e6)};
}

void read_error_budgets(const ParameterValues& values, PromptEviction& setting) {
  setting.layers = LayerBudgets::kErrors;
  setting.least = values.integer("least_layer_budget");
  setting.most_factor = values.integer("most_layer_factor");
  if (setting.least < setting.window) {
    throw UserError(values.where("least_layer_budget"),
                    fmt::format("a layer of {} tokens does not hold the window of {}", setting.least, setting.window));
  }
}

}  // namespace kvcast::policy
