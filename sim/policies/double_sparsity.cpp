// Double Sparsity (Yang et al., "Post-Training Sparse Attention with Double Sparsity", 2024, arXiv 2408.07092; code:
// andy-yang-1/DoubleSparse).
//
// Idea: the channels that decide the scores of a head hardly depend on the input, so that a small copy of these
// channels in few bits finds the important tokens.
// Offline, for every KV head: the `channels` heaviest channels by mean |q·k| of a token with itself, mean |k| or mean
// |q| (`calibrate_on`), summed over the group. The prompt replaces the calibration text: its last `window` queries,
// with the keys of the same tokens, or all of its keys. Selection in each step: q and k of these channels, each rounded
// to `label_bits` between its smallest and largest channel; score = their product, for each query head or reduced over
// the group; the best `budget` tokens, after the first `sink` and the last `recent`. Cost: n_kv·L·(r·bits/8 + 4) bytes
// of labels read; top-k over L; attention 2·n·budget·d·b; a label appended. All in sequence. Storage: 2·n_kv·L·d·b +
// the labels.
#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "policies/kivi.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"
#include "policy_parts/token_top_k.hpp"

namespace kvcast::policy::double_sparsity {
namespace {

constexpr int kUnrounded = 16;  // bits with which labels equal the keys

struct DoubleSetting {
  std::int64_t budget = 0, sink = 0, recent = 0, channels = 0;
  int label_bits = kUnrounded, window = 0;
  std::string calibrate_on;
  Group group = Group::kPerHead;

  std::int64_t channels_of(int head_dim) const { return std::min<std::int64_t>(channels, head_dim); }
  bool uses_queries() const { return calibrate_on != "k"; }
  // A shorter prompt is used as a whole.
  int window_of(std::int64_t prompt) const { return static_cast<int>(std::min<std::int64_t>(window, prompt)); }
  // Bytes of a token's label with its scale and minimum.
  double label_bytes(const Dims& m) const {
    const double r = std::min(static_cast<double>(channels), m.d);
    return label_bits == kUnrounded ? r * m.element : r * label_bits / 8 + 4;
  }
};

class DoubleHead final : public HeadRetrieval {
 public:
  DoubleHead(const LayerInput& input, int kv_head, const TokenList& tokens, const DoubleSetting& setting)
      : layer_(input.layer()),
        first_q_(kv_head * input.info().group()),
        r_(index(setting.channels_of(input.info().head_dim))),
        s_(setting),
        channels_(heaviest(kv_head)),
        labels_(make_labels(kv_head)),
        ranks_(
            {{labels_.data(), labels_.size() / r_, r_, r_},
             input.info().decode_steps,
             index(input.info().group()),
             [this](int t, std::size_t g, std::span<float> out) {
               label(layer_.decode_query(first_q_ + static_cast<int>(g), t), out.data());
             }},
            tokens,
            {setting.budget, setting.sink, setting.recent, setting.group, 1.0f / std::sqrt(static_cast<float>(r_))}) {}

  void step(int t, std::span<HeadSelection> out) override { ranks_.step(t, out); }

 private:
  // Adds Σ |x| of each channel over the rows to `sum`.
  static void add_magnitudes(const MatrixView& rows, std::vector<double>& sum) {
    for (std::size_t i = 0; i < rows.rows; ++i) {
      for (std::size_t j = 0; j < rows.cols; ++j) sum[j] += std::abs(static_cast<double>(rows.row(i)[j]));
    }
  }

  // Adds Σ |q·k| of each channel over the queries and the keys of the same tokens, the first one at `first`.
  static void add_products(const MatrixView& queries, const MatrixView& keys, std::size_t first,
                           std::vector<double>& sum) {
    for (std::size_t i = 0; i < queries.rows; ++i) {
      const float *const q = queries.row(i), *const k = keys.row(first + i);
      for (std::size_t j = 0; j < queries.cols; ++j) sum[j] += std::abs(static_cast<double>(q[j]) * k[j]);
    }
  }

  std::vector<std::int32_t> heaviest(int kv_head) const {
    const trace::TraceInfo& info = layer_.info();
    std::vector<double> sum(index(info.head_dim));
    MatrixView keys = layer_.keys(kv_head);
    keys.rows = index(info.prompt_tokens);
    if (!s_.uses_queries()) add_magnitudes(keys, sum);
    const int window = s_.window_of(info.prompt_tokens);
    const auto first = index(info.prompt_tokens - window);
    for (int g = 0; g < info.group() && s_.uses_queries(); ++g) {
      const MatrixView queries = layer_.window_queries(first_q_ + g, window);
      if (s_.calibrate_on == "q") {
        add_magnitudes(queries, sum);
      } else {
        add_products(queries, keys, first, sum);
      }
    }
    const std::vector<float> weight(sum.begin(), sum.end());
    std::vector<std::int32_t> best;
    Ranking().select(weight, r_, best);
    return best;
  }

  void label(const float* x, float* out) const {
    for (std::size_t i = 0; i < r_; ++i) out[i] = x[channels_[i]];
    if (s_.label_bits < kUnrounded) quantise(out, r_, 1, s_.label_bits);
  }

  std::vector<float> make_labels(int kv_head) const {
    const MatrixView keys = layer_.keys(kv_head);
    std::vector<float> out(keys.rows * r_);
    for (std::size_t i = 0; i < keys.rows; ++i) label(keys.row(i), out.data() + i * r_);
    return out;
  }

  const trace::Layer& layer_;
  int first_q_;
  std::size_t r_;
  DoubleSetting s_;
  std::vector<std::int32_t> channels_;
  std::vector<float> labels_;  // [positions × r]
  TokenTopK ranks_;
};

class DoubleSparsity final : public RetrievalBy<DoubleHead, DoubleSetting> {
 public:
  using RetrievalBy::RetrievalBy;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    const Dims m(*shape.model);
    make_labels(shape.batch * m.kv_heads * kept, m, "labels of keys", ops);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const OpId labelled = make_labels(shape.batch * (m.kv_heads + m.q_heads), m, "labels of query and key", ops);
    const double keys = units_read(shape);
    const double r = s_.channels_of(shape.model->head_dim);
    const OpId chosen =
        score_and_rank(shape, keys * s_.label_bytes(m), 2 * keys * m.group * r, s_.budget, ops, labelled);
    ops.done(ops.attention(attention_to_selected(shape, gathered_unit(shape)), {chosen}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    const Dims m(*shape.model);
    const double heads = shape.batch * shape.model->layers * m.kv_heads;
    return {in_hbm(Owner::kKeyLabels, heads * tokens * s_.label_bytes(m))};
  }

  Growth growth(const Lengths&) const override { return {.scored = 1, .fill = s_.budget}; }

 private:
  // Channels are not adjacent in the vectors from which they are taken.
  OpId make_labels(double vectors, const Dims& m, const char* label, LayerOps& ops) const {
    const auto r = std::min(static_cast<double>(s_.channels), m.d);
    Kernel work{.cls = KernelClass::kGather,
                .read_bytes = vectors * r * m.element,
                .write_bytes = vectors * s_.label_bytes(m),
                .unit_bytes = m.element};
    work.flops = 4 * vectors * r;  // minimum, maximum, scale, rounding
    return ops.compute(Kind::kIndex, label, work, {ops.ready()});
  }
};

Fields<DoubleSetting> double_sparsity_fields() {
  using S = DoubleSetting;
  return Fields<S>()
      .add(budget_parameter("tokens attended to per selecting head"), &S::budget)
      .add(whole("channels", 16, "channels", "r: number of heaviest channels in a label, at most the head dimension", 1,
                 65536),
           &S::channels)
      .add(whole("label_bits", 4, "bits", "bits of a channel in a label; 16: as in the key", 1, kUnrounded),
           &S::label_bits)
      .add(choice("calibrate_on", {"qk", "q", "k"},
                  "mean magnitudes that define heavy channels: of the products of a token's query and key, or of "
                  "one of them"),
           &S::calibrate_on)
      .add(whole("window", 32, "queries", "last prompt queries used for calibration", 1, 65536), &S::window)
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent)
      .add(group_parameter(
               {"per_head", "sum_scores", "mean_scores", "max_scores", "sum_weights", "mean_weights", "max_weights"}),
           &S::group);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "double_sparsity";
  d.sentence = "Keeps everything on the GPU and finds tokens by a few channels of their keys, stored in few bits.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Yang et al., Double Sparsity, 2024 (arXiv 2408.07092)";
  d.parameters = double_sparsity_fields().parameters();
  d.budget_convention = "per query head with group: per_head, otherwise per KV head";
  d.formulas = {"traffic: n_kv·L·(r·bits/8 + 4) + 2·n·budget·d·b per step, n = n_q per head, otherwise n_kv",
                "storage: 2·n_kv·L·d·b + n_kv·L·(r·bits/8 + 4)"};
  d.differences = {
      "channels are computed from the prompt itself; the released code calibrates once on other text, which fits less "
      "well",
      "the query heads of a KV head share one set of channels; the released code repeats keys for each query head and "
      "chooses its channels separately",
      "magnitudes of queries or keys alone are those after the rotary embedding; the released files of this kind hold "
      "those before it",
      "Double Sparsity-Offload, which fetches the tokens of the next layer from host memory, is not modelled"};
  d.needs = [](const ParameterValues& values, const Lengths& lengths) {
    const DoubleSetting s = double_sparsity_fields().read(values);
    return ReplayNeeds{.window = s.uses_queries() ? s.window_of(lengths.prompt_tokens) : 0};
  };
  d.stages = [](const ParameterValues& values) {
    const DoubleSetting s = double_sparsity_fields().read(values);
    check_quota(values, {s.budget, s.sink, s.recent});
    return Stages{keep_all(), std::make_unique<DoubleSparsity>(s)};
  };
  return d;
}

}  // namespace kvcast::policy::double_sparsity
