// CriticalKV (Feng et al., "Identify Critical KV Cache in LLM Inference from an Output Perturbation Perspective", 2025,
// arXiv 2502.03805; code: NVIDIA/kvpress, criticalkv_press.py).
//
// Idea: a dropped pair changes the layer's output by its weight times the size of its projected value.
// Selection, once after the prompt, per KV head: the first_stage · budget tokens with the largest SnapKV scores; then,
// up to the budget, the others with the largest (score + epsilon) times the mean over the group of ‖W_O v‖₁.
// A trace does not contain the output projection: ‖v‖₂ represents ‖W_O v‖₁, to which it is proportional on average for
// independent weights of one variance.
// Cost of the prompt: SnapKV's scores; W_O v of every token and query head, 2·n_q·d·D·S FLOP, written and read;
// top-k twice; compaction. A step reads 2·n_kv·(budget + T)·d·b.
// Storage: the same.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/window_ranking.hpp"

namespace kvcast::policy::criticalkv {
namespace {

struct CriticalSetting {
  PromptEviction scores;
  double first_stage = 0.5, epsilon = 1e-4;
  std::int64_t first() const {
    return static_cast<std::int64_t>(std::floor(first_stage * static_cast<double>(scores.budget) + 1e-9));
  }
};

class CriticalRetention final : public Retention {
 public:
  explicit CriticalRetention(const CriticalSetting& setting) : s_(setting) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    const std::int64_t prompt = layer.info().prompt_tokens;
    if (prompt <= s_.scores.budget) return {};
    std::vector<std::vector<float>> heads = ranked_by_window(layer, s_.scores);
    std::vector<std::vector<std::int32_t>> kept(heads.size());
    Ranking ranking;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      rank_first(heads[h], s_.scores.sink, s_.scores.last());
      std::vector<std::int32_t> first;
      ranking.select(heads[h], s_.first(), first);
      const MatrixView values = layer.layer().values(static_cast<int>(h));
      for (std::size_t i = 0; i < heads[h].size(); ++i) {
        const float* const value = values.row(i);
        heads[h][i] = (heads[h][i] + static_cast<float>(s_.epsilon)) * std::sqrt(dot(value, value, values.cols));
      }
      for (const std::int32_t i : first) heads[h][i] = kLargest;
      ranking.select(heads[h], s_.scores.budget, kept[h]);
    }
    return kept;
  }

  std::int64_t kept(const Lengths& request) const override { return std::min(request.prompt_tokens, s_.scores.budget); }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape, s_.scores.budget);
    if (n == 0) return;
    const Dims m(*shape.model);
    const double lists = shape.batch * m.kv_heads, rows = shape.batch * n;
    OpId op = window_scores_cost(s_.scores, shape, n, m.q_heads, m.kv_heads, ops);
    op = ops.compute(Kind::kTopK, "top-k of the first stage", TopK{lists, n, static_cast<double>(s_.first())}, {op});
    Gemm project{rows, static_cast<double>(shape.model->hidden), m.d};
    project.groups = m.q_heads;
    op = ops.compute(Kind::kGemm, "values through the output projection", project, {op});
    const double projected = rows * m.q_heads * shape.model->hidden;
    Kernel norms{KernelClass::kReduce, projected * config::Model::kElementBytes, lists * n * kScoreBytes};
    norms.flops = 2 * projected;
    op = ops.compute(Kind::kScore, "norms of projected values", norms, {op});
    rank_and_compact(*shape.model, lists, n, s_.scores.budget, ops, op);
  }

 private:
  static constexpr float kLargest = std::numeric_limits<float>::infinity();
  CriticalSetting s_;
};

const Fields<CriticalSetting>& criticalkv_fields() {
  using S = CriticalSetting;
  static const Fields<S> all =
      Fields<S>()
          .add(window_ranking_fields("prompt tokens kept per KV head, including the window"), &S::scores)
          .add(real("first_stage", 0.5, "share of the budget that scores alone decide"), &S::first_stage)
          .add(real("epsilon", 1e-4, "added to a score before the multiplication by the norm"), &S::epsilon);
  return all;
}

CriticalSetting read_criticalkv(const ParameterValues& values) {
  const CriticalSetting s = criticalkv_fields().read(values);
  check_window(values, s.scores);
  if (s.first() < s.scores.sink + s.scores.last()) {
    throw UserError(values.where("first_stage"),
                    fmt::format("criticalkv: the first stage keeps {} tokens, fewer than sink, window and recent ({})",
                                s.first(), s.scores.sink + s.scores.last()));
  }
  return s;
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "criticalkv";
  d.sentence =
      "Keeps the prompt tokens whose loss changes the layer's output most: by attention, and by projected value.";
  d.category = Category::kDrop;
  d.paper = "Feng et al., CriticalKV, 2025 (arXiv 2502.03805)";
  d.parameters = criticalkv_fields().parameters();
  d.budget_convention = "prompt tokens, including the window; in addition generated tokens";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step", "prompt: 2·n_q·d·D·S FLOP to project values",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b"};
  d.differences = {
      "traces have no output projection: the norm of the value stands for that of its projection; the time of the "
      "projection counts",
      "base scores are SnapKV's as in kvpress (window 64, mean pooling over 5); every KV head keeps the same number, "
      "the variant with AdaKV's budgets is left out"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) { return evicts_once(values.integer("budget")); };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.window = criticalkv_fields().read(values).scores.window};
  };
  d.stages = [](const ParameterValues& values) {
    return Stages{std::make_unique<CriticalRetention>(read_criticalkv(values)), read_all()};
  };
  return d;
}

}  // namespace kvcast::policy::criticalkv
