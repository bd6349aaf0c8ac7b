// SnapKV (Li et al., 2024, arXiv 2404.14469).
//
// Idea: what the end of the prompt attends to is what the answer will attend to.
// Selection, once after the prompt: the last `window` queries' softmax weights summed over rows, reduced over the
// group,
//   pooled along positions; the best budget − window positions stay, and the window itself. Generated tokens are never
//   evicted. A prompt of at most `budget` tokens stays whole.
// Cost: prefill: window scores (flops 2·n_q·w·S·d, keys read once, scores n_q·w·S·4 bytes written and read twice),
// top-k,
//   compaction of the kept tokens; decode: 2·n_kv·(budget + T)·d·b, per head n_q instead of n_kv.
// Storage: 2·n_kv·(budget + T)·d·b; per head every query head keeps its own copy, n_q instead of n_kv.
#include "policy/snapkv.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy/descriptors.hpp"
#include "policy/ranking.hpp"

namespace kvcast::policy {
namespace {

using graph::Kind;
using graph::Lane;

class EvictByWindow final : public Retention {
 public:
  explicit EvictByWindow(const WindowEviction& setting) : s_(setting) {}

  bool per_query_head() const override { return s_.group == Group::kPerHead; }
  bool frees() const override { return s_.frees; }
  std::int64_t kept(std::int64_t prompt) const override { return std::min(prompt, s_.budget); }

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer) const override {
    const trace::TraceInfo& info = layer.info();
    if (info.prompt_tokens <= s_.budget) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(info.prompt_tokens));
      std::iota(all.begin(), all.end(), 0);
      return std::vector(static_cast<std::size_t>(per_query_head() ? info.n_q_heads : info.n_kv_heads), all);
    }
    const auto scores = layer.window_scores(s_.window);
    std::vector<std::vector<std::int32_t>> kept;
    std::vector<float> reduced, pooled;
    Ranking ranking;
    const int group = per_query_head() ? 1 : info.group();
    for (int head = 0; head < info.n_q_heads / group; ++head) {
      reduce_window(*scores, head, group, s_.group, reduced);
      pool(s_.pool, s_.pool_kernel, reduced, pooled);
      std::vector<std::int32_t>& out = kept.emplace_back();
      ranking.select(pooled, static_cast<std::size_t>(s_.budget - s_.window), out);
      for (std::int64_t i = info.prompt_tokens - s_.window; i < info.prompt_tokens; ++i) {
        out.push_back(static_cast<std::int32_t>(i));
      }
    }
    return kept;
  }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    if (shape.prompt_tokens <= s_.budget) return;
    const Dims m(*shape.model);
    const auto prompt = static_cast<double>(shape.prompt_tokens);
    const double rows = shape.batch * m.q_heads * s_.window, selecting = per_query_head() ? m.q_heads : m.kv_heads;
    const double scored = prompt - s_.window;
    graph::Kernel score{graph::KernelClass::kScore, shape.batch * m.kv_heads * prompt * m.row() + rows * m.row(),
                        rows * prompt * kScoreBytes};
    score.flops = 2 * rows * prompt * m.d;
    graph::OpId op = ops.kernel(Lane::kCompute, Kind::kScore, "window scores", score, {ops.ready()});
    graph::Kernel reduce{graph::KernelClass::kReduce, 2 * rows * prompt * kScoreBytes,
                         shape.batch * selecting * scored * kScoreBytes};
    reduce.flops = 4 * rows * prompt;  // largest, difference and exponential, sum, division
    op = ops.kernel(Lane::kCompute, Kind::kScore, "softmax and sum", reduce, {op});
    const double pooled = shape.batch * selecting * scored * kScoreBytes;
    graph::Kernel pooling{graph::KernelClass::kElementwise, pooled, pooled};
    pooling.flops = shape.batch * selecting * scored * s_.pool_kernel;
    op = ops.kernel(Lane::kCompute, Kind::kScore, "pool", pooling, {op});
    const auto stay = static_cast<double>(s_.budget - s_.window);
    op = ops.kernel(Lane::kCompute, Kind::kTopK, "top-k",
                    graph::TopK{shape.batch * selecting, scored, stay, kScoreBytes}, {op});
    const double moved = shape.batch * 2 * selecting * static_cast<double>(s_.budget) * m.row();
    graph::Kernel compact{graph::KernelClass::kGather, moved, moved};
    compact.unit_bytes = m.row();
    ops.kernel(Lane::kCompute, Kind::kIndex, "compact", compact, {op});
  }

 private:
  WindowEviction s_;
};

std::unique_ptr<Policy> make(const ParameterValues& values, const Lengths&) {
  const std::int64_t budget = values.integer("budget");
  check_window(values, budget);
  WindowEviction setting;
  setting.budget = budget;
  setting.window = static_cast<int>(values.integer("window"));
  setting.pool = parse_pool(values.text("pool"));
  setting.pool_kernel = static_cast<int>(values.integer("pool_kernel"));
  setting.group = parse_group(values.text("group"));
  return two_stages(evict_by_window(setting), read_all());
}

}  // namespace

std::unique_ptr<Retention> evict_by_window(const WindowEviction& setting) {
  KVCAST_CHECK(setting.window >= 1 && setting.budget >= setting.window && setting.pool_kernel % 2 == 1);
  return std::make_unique<EvictByWindow>(setting);
}

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

Descriptor describe_snapkv() {
  Descriptor d;
  d.name = "snapkv";
  d.sentence = "Keeps the prompt tokens that the last prompt queries attend to, and everything generated.";
  d.category = "drop";
  d.paper = "Li et al., SnapKV, 2024 (arXiv 2404.14469)";
  d.parameters = {budget_parameter("prompt tokens kept a KV head, the window included"), window_parameter(32)};
  for (Parameter& p : pool_parameters("max", 7)) d.parameters.push_back(std::move(p));
  d.parameters.push_back(group_parameter({"sum_weights", "mean_weights", "max_weights", "per_head"}));
  d.budget_convention = "retained: of the prompt, the window included; generated tokens come on top";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b a step (n_q instead of n_kv per head)",
                "storage: the same number of bytes"};
  d.differences = {"the released code selects per query head and stores a copy for each: group: per_head",
                   "defaults are those of its LongBench settings (window 32, max pooling over 7)"};
  d.make = make;
  return d;
}

}  // namespace kvcast::policy
