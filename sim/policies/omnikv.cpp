// OmniKV (Hao et al., "OmniKV: Dynamic Context Selection for Efficient Long-Context LLMs", ICLR 2025; code:
// antgroup/OmniKV).
//
// Idea: neighbouring layers attend to the same tokens, so that a few filter layers, which attend to everything, can
// select for the layers after them.
// Layers: those before `first_filter`, the `filter_layers` filter layers, evenly spaced from it on, and the
// `wait_layers` after each of them, behind which the first fetch is hidden, are dense; every other layer uses the
// selection of the last filter layer before it. Selection in each step: the filter layer's query weighs the prompt
// (softmax over the prompt alone; max_scores: none). The maximum over all query heads ranks its tokens. Every head of
// the following layers attends to the best `budget` of the prompt, after its first `sink` tokens and those of the last
// `recent` that are not generated, and to all generated tokens. Cost of a filter layer:
// prompt keys read once more, n_kv·S·d·b, weights n_q·S·4 written and read, top-k; attention over everything. In the
// following layers the CPU gathers the selected tokens' pairs, 2·n_kv·budget·d·b, which are fetched while the layer
// before is computed; attention over them and the generated tokens. Storage: HBM: the whole cache of dense and filter
// layers, generated tokens of the others, and the selected pairs of one run of layers; DRAM: the prompt's pairs of the
// other layers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/host_attention.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/pass_parts.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::omnikv {
namespace {

struct OmniSetting {
  std::int64_t budget = 0, sink = 0, recent = 0;
  int first_filter = 0, filter_layers = 1, wait_layers = 0;
  Group scores = Group::kMaxWeights;
  bool on_gpu = false;  // nothing is offloaded

  // Ascending filter layers of a model; none if it has too few layers.
  std::vector<int> filters(int layers) const {
    std::vector<int> out;
    for (int i = 0; i < filter_layers && first_filter < layers; ++i) {
      const int next = first_filter + i * (layers - first_filter) / filter_layers;
      if (out.empty() || next > out.back()) out.push_back(next);
    }
    return out;
  }
  std::int64_t chosen(std::int64_t prompt) const { return std::min(budget, prompt); }
};

enum class Role { kDense, kFilter, kFollows };

class OmniSelector final : public Selector {
 public:
  OmniSelector(const trace::Layer& layer, const trace::Layer& source, const OmniSetting& setting)
      : info_(layer.info()), source_(source), s_(setting) {}

  void prefill(LayerSelection& resident) override {
    resident.reset(index(info_.n_kv_heads), false);
    if (!s_.on_gpu) return;
    for (HeadSelection& head : resident.heads) append_range(0, info_.prompt_tokens, head.attended);
  }

  void step(int t, LayerSelection& out) override {
    out.reset(index(info_.n_kv_heads), false);
    std::vector<std::int32_t> chosen;
    choose(t, chosen);
    for (HeadSelection& head : out.heads) {
      head.attended = chosen;
      append_range(info_.prompt_tokens, info_.prompt_tokens + t + 1, head.attended);
      if (s_.on_gpu) continue;
      head.fetched = head.evicted = chosen;  // fetched pairs are replaced by those of the next layer
      head.counts.fetched_runs = static_cast<std::int64_t>(chosen.size());
    }
  }

 private:
  void choose(int t, std::vector<std::int32_t>& out) {
    const auto prompt = index(info_.prompt_tokens);
    best_.assign(prompt, -std::numeric_limits<float>::infinity());
    for (int q = 0; q < info_.n_q_heads; ++q) {
      const float* const scores = source_.decode_scores(q).row(index(t));
      row_.assign(scores, scores + prompt);
      if (s_.scores == Group::kMaxWeights) softmax(row_, 1 / std::sqrt(static_cast<float>(info_.head_dim)));
      for (std::size_t i = 0; i < prompt; ++i) best_[i] = std::max(best_[i], row_[i]);
    }
    rank_first(best_, index(s_.sink), index(std::max<std::int64_t>(0, s_.recent - t - 1)));
    ranking_.select(best_, index(s_.budget), out);
  }

  const trace::TraceInfo& info_;
  const trace::Layer& source_;
  OmniSetting s_;
  Ranking ranking_;
  std::vector<float> best_, row_;
};

class OmniKv final : public PolicyBy<OmniSetting> {
 public:
  using PolicyBy::PolicyBy;

  bool covers(const Lengths& request) const override { return s_.budget >= request.bound(); }

  bool surveys(const Lengths&) const override { return true; }
  void survey(std::span<const LayerInput* const> layers, const Lengths&) override {
    layers_.assign(layers.begin(), layers.end());
  }

  // Every captured layer is replayed as one that uses the selection of its filter layer or, if the trace lacks that
  // layer, of the captured layer nearest to it.
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    const int id = layer.layer().id();
    int filter = -1;
    for (const int f : s_.filters(layer.info().n_layers)) filter = f <= id || filter < 0 ? f : filter;
    const LayerInput* source = nullptr;
    for (const LayerInput* other : layers_) {
      const int at = other->layer().id();
      if (at == id && id != filter) continue;
      const int wanted = filter < 0 ? id : filter;
      if (source == nullptr || std::abs(at - wanted) < std::abs(source->layer().id() - wanted)) source = other;
    }
    return std::make_unique<OmniSelector>(layer.layer(), (source == nullptr ? layer : *source).layer(), s_);
  }

  double recalling_share(const config::Model& model) const override {
    int follow = 0;
    for (int l = 0; l < model.layers; ++l) follow += role(l, model.layers) == Role::kFollows ? 1 : 0;
    return static_cast<double>(follow) / model.layers;
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    if (s_.on_gpu || role(shape.layer, shape.model->layers) != Role::kFollows) return;
    offload_prompt(shape, {0, 0, true}, ops);
  }

  // The tokens that each role reads follow from the setting, whichever captured layer the counts are from.
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Role here = role(shape.layer, shape.model->layers);
    const OtherCounts own(shape, [&](const Sequence& s) {
      const std::int64_t prompt = s.request.prompt_tokens;
      return here == Role::kFollows ? s_.chosen(prompt) + s.tokens - prompt : s.tokens;
    });
    OpId op = ops.ready();
    if (here == Role::kFilter) op = choose(shape, ops);
    if (here == Role::kFollows && !s_.on_gpu) op = ops.join(Lane::kCompute, {op, fetch(shape, ops)});
    const double unit = here == Role::kFollows && s_.on_gpu ? Dims(*shape.model).row() : 0;
    ops.done(ops.attention(attention_over(own.shape(), unit), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const int layers = shape.model->layers;
    const auto all = static_cast<double>(shape.tokens), prompt = static_cast<double>(shape.lengths.prompt_tokens);
    int longest = 0, run = 0;
    for (int l = 0; l < layers; ++l) {
      run = role(l, layers) == Role::kFollows ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    if (s_.on_gpu) return {in_hbm(Owner::kKvCache, kv_bytes(shape, all))};
    const double share = recalling_share(*shape.model);
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, all - share * prompt)),
            in_hbm(Owner::kFetchedPairs, kv_bytes(shape, s_.chosen(shape.lengths.prompt_tokens)) * longest / layers),
            in_dram(Owner::kHostCache, share * kv_bytes(shape, prompt))};
  }

  Growth growth(const Lengths&) const override { return {.attended = 1}; }

 private:
  Role role(int layer, int layers) const {
    const std::vector<int> filters = s_.filters(layers);
    if (layer < s_.first_filter) return Role::kDense;
    const auto next = std::upper_bound(filters.begin(), filters.end(), layer);
    const int since = next == filters.begin() ? layer : layer - *(next - 1);  // layers since the last filter layer
    return since == 0 ? Role::kFilter : since <= s_.wait_layers ? Role::kDense : Role::kFollows;
  }

  // Computes weights of the prompt's tokens, selects the best, and copies their numbers to the host.
  OpId choose(const DecodeLayer& shape, LayerOps& ops) const {
    const Dims m(*shape.model);
    const double prompt = mean_prompt(shape), weights = shape.batch * m.q_heads * prompt;
    const Kernel score{KernelClass::kScore, shape.batch * m.kv_heads * prompt * m.row(), weights * kScoreBytes,
                       2 * weights * m.d};
    OpId op = ops.compute(Kind::kScore, "scores of the prompt", score, {ops.ready()});
    const double passes = s_.scores == Group::kMaxWeights ? 2 : 1;
    const Kernel largest{KernelClass::kReduce, passes * weights * kScoreBytes, shape.batch * prompt * kScoreBytes,
                         weights * (passes == 2 ? 5 : 1)};
    op = ops.compute(Kind::kScore, "largest over heads", largest, {op});
    const double chosen = mean_chosen(shape);
    op = ops.compute(Kind::kTopK, "top-k", TopK{static_cast<double>(shape.batch), prompt, chosen, kScoreBytes}, {op});
    if (!s_.on_gpu) fetch_ids(shape.batch * chosen, {Lane::kCompute, Lane::kRecallThread}, ops, op);
    return op;
  }

  // Starts with the layer before, once the thread has the filter layer's numbers.
  OpId fetch(const DecodeLayer& shape, LayerOps& ops) const {
    const Dims m(*shape.model);
    const double pairs = shape.sum(&HeadCounts::fetched);
    if (pairs <= 0) return ops.ready();
    const OpId free = ops.join(Lane::kRecallThread, {ops.ready_before()});
    return gather_pairs(pairs, 2 * mean_prompt(shape) * m.row() / mean_chosen(shape), m, ops, free);
  }

  static double mean_prompt(const DecodeLayer& shape) {
    return shape.mean_over([](const Sequence& s) { return s.request.prompt_tokens; });
  }
  double mean_chosen(const DecodeLayer& shape) const {
    return shape.mean_over([this](const Sequence& s) { return s_.chosen(s.request.prompt_tokens); });
  }

  std::vector<const LayerInput*> layers_;  // the surveyed layers
};

Fields<OmniSetting> omnikv_fields() {
  using S = OmniSetting;
  return Fields<S>()
      .add(budget_parameter("prompt tokens that a filter layer selects"), &S::budget)
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent)
      .add(whole("first_filter", 2, "layers", "layers before the first filter layer, which are dense", 0, 1000),
           &S::first_filter)
      .add(whole("filter_layers", 3, "layers", "filter layers, evenly spaced", 1, 1000), &S::filter_layers)
      .add(whole("wait_layers", 1, "layers", "dense layers after each filter layer", 0, 1000), &S::wait_layers)
      .add(choice("group", {"max_weights", "max_scores"},
                  "largest of all query heads of the layer: softmax weights, or scores"),
           &S::scores)
      .add(choice("place", {"host", "gpu"}, "location of the prompt's pairs of the layers after filter layers"),
           &S::on_gpu);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "omnikv";
  d.sentence = "A few layers that attend to everything select the tokens that the layers after them fetch and read.";
  d.category = Category::kHostRetrieval;
  d.paper = "Hao et al., OmniKV, ICLR 2025 (openreview ulCAPXYXfa)";
  d.parameters = omnikv_fields().parameters();
  d.make = [](const ParameterValues& values) {
    const OmniSetting s = omnikv_fields().read(values);
    check_quota(values, {s.budget, s.sink, s.recent});
    return full_when_covered(std::make_unique<OmniKv>(s));
  };
  d.recall_page = [](const ParameterValues& values) { return values.text("place") == "host" ? 1 : 0; };
  d.budget_convention = "prompt tokens, in the layers after filter layers; generated tokens in addition";
  d.formulas = {
      "traffic per step: n_kv·S·d·b + 2·n_kv·L·d·b in a filter layer, 2·n_kv·(budget + T)·d·b in others, of which "
      "2·n_kv·budget·d·b from the host",
      "storage: HBM 2·n_kv·L·d·b of dense, filter and wait layers, 2·n_kv·(T + budget)·d·b of others, DRAM "
      "2·n_kv·S·d·b"};
  d.differences = {
      "filter layers are evenly spaced; the released ones are chosen by hand for each model (2, 8 and 18 of the 32 of "
      "Llama-3-8B)",
      "one layer waits after each filter layer, as in the released examples; the released class waits for two",
      "a replay shows the layers after filter layers; if the trace lacks their filter layer, the captured layer "
      "nearest to it selects, and in a trace of one layer that layer itself, which is better than any other layer's "
      "selection",
      "every step fetches all selected tokens; page_cache keeps those of earlier steps",
      "selection by a window of queries (uniform, exponential) is not modelled"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    return BudgetRule{.tokens = values.integer("budget"), .generated_on_top = true};
  };
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.coupled = true}; };
  d.uncompressed_layers = {"first_filter", "filter_layers", "wait_layers"};
  return d;
}

}  // namespace kvcast::policy::omnikv
