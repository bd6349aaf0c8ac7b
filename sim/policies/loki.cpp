// Loki (Singhania et al., "Loki: Low-rank Keys for Efficient Sparse Attention", NeurIPS 2024, arXiv 2406.02542; code:
// hpcgroup/loki).
//
// Idea: keys of a head are close to a space of few dimensions; the leading principal components rank tokens well.
// Offline, for every layer and KV head: R = all d principal components of its keys (mean removed).
// Selection in each step: q̂ = R·q, k̂ = R·k; estimated score = q̂[0, r)·k̂[0, r) / √d, reduced over the group
// (per_head: each query head separately, as released); the best k = budget, after the first `sink` and the last
// `recent` tokens.
// Output: softmax over these with all dimensions: R is orthogonal, so that q̂·k̂ = q·k.
// Cost: rotation of q and k 2·(n_q + n_kv)·d² flop, n_kv·d²·b of matrices read; n_kv·L·r·b of keys read; top-k over L;
// attention 2·n·k·d·b. All in sequence.
// Storage: 2·n_kv·L·d·b, keys rotated in place, + n_kv·d²·b.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/bases.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/pre_rope.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/spectrum.hpp"
#include "policy_parts/stages.hpp"
#include "policy_parts/token_top_k.hpp"

namespace kvcast::policy::loki {
namespace {

const char* basis_kind(bool before_rope) { return before_rope ? "keys_before_rope" : "keys"; }

struct LokiSetting {
  std::int64_t budget = 0, sink = 0, recent = 0;
  std::int64_t dims = 0;         // r, at most the head dimension
  std::int64_t calibration = 0;  // first prompt tokens from which the components are computed; 0: all
  bool before_rope = false;
  std::shared_ptr<const Bases> basis;  // null: the prompt's own components
  Group group = Group::kSumScores;
  std::int64_t dims_of(int head_dim) const { return std::min<std::int64_t>(dims, head_dim); }
  TokenTopK::Shape ranks(const trace::TraceInfo& info) const {
    return {budget, sink, recent, group, 1.0f / std::sqrt(static_cast<float>(info.head_dim))};
  }
};

class LokiHead final : public HeadRetrievalBy<LokiSetting> {
 public:
  LokiHead(const LayerInput& input, int kv_head, const TokenList& tokens, const LokiSetting& setting)
      : HeadRetrievalBy(input, kv_head, tokens, setting),
        dims_(index(setting.dims_of(input.info().head_dim))),
        components_(find_components()),
        rotated_(rotate_keys()),
        ranks_({{rotated_.data(), rotated_.size() / dims_, dims_, dims_},
                input.info().decode_steps,
                members_,
                [this](int t, std::size_t member, std::span<float> out) { rotate_query(t, member, out); }},
               tokens, setting.ranks(input.info())) {}

  void step(int t, std::span<HeadSelection> out) override { ranks_.step(t, out); }

 private:
  // [dims × d], in descending order of variance.
  std::vector<float> find_components() const {
    if (s_.basis != nullptr) {
      s_.basis->check_shape(layer_.info());
      const MatrixView rows = s_.basis->of(basis_kind(s_.before_rope), layer_.id(), kv_head_);
      return {rows.data, rows.data + dims_ * d_};
    }
    const std::int64_t prompt = layer_.info().prompt_tokens;
    const std::int64_t n = s_.calibration == 0 ? prompt : std::min(prompt, s_.calibration);
    const auto rows = index(n);
    std::vector<float> unrotated;
    MatrixView keys{layer_.keys(kv_head_).data, rows, d_, layer_.keys(kv_head_).stride};
    if (s_.before_rope) {
      unrotated = keys_before_rope(layer_, kv_head_, n);
      keys = {unrotated.data(), rows, d_, d_};
    }
    return leading_directions(second_moments(keys, true), d_, dims_);
  }

  std::vector<float> rotate_keys() const {
    const MatrixView keys = layer_.keys(kv_head_);
    std::vector<float> out(keys.rows * dims_);
    multiply_transposed(keys, {components_.data(), dims_, d_, d_}, out.data(), dims_);
    return out;
  }

  void rotate_query(int t, std::size_t member, std::span<float> out) const {
    const float* const q = layer_.decode_query(kv_head_ * static_cast<int>(members_) + static_cast<int>(member), t);
    for (std::size_t i = 0; i < dims_; ++i) out[i] = dot(components_.data() + i * d_, q, d_);
  }

  std::size_t dims_;
  std::vector<float> components_, rotated_;  // rotated_: the leading components of the keys at all positions
  TokenTopK ranks_;
};

class Loki final : public RetrievalBy<LokiHead, LokiSetting> {
 public:
  using RetrievalBy::RetrievalBy;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double tokens = shape.batch * m.kv_heads * kept;
    rotate(tokens, m, ops, "rotate keys");
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    OpId op = rotate(shape.batch * (m.q_heads + m.kv_heads), m, ops, "rotate query and key");
    const double keys = units_read(shape);
    const double dims = s_.dims_of(shape.model->head_dim);
    op = score_and_rank(shape, keys * dims * m.element, 2 * keys * m.group * dims, s_.budget, ops, op);
    ops.done(ops.attention(attention_to_selected(shape, gathered_unit(shape)), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t) const override {
    const Dims m(*shape.model);
    return {in_hbm(Owner::kPrincipalComponents, shape.model->layers * m.kv_heads * m.d * m.row(), true)};
  }

  Growth growth(const Lengths&) const override { return {.scored = 1, .fill = s_.budget}; }

 private:
  // Rotates to all d components, because attention needs the whole key.
  static OpId rotate(double vectors, const Dims& m, LayerOps& ops, const char* label) {
    const Kernel work{KernelClass::kElementwise, vectors * m.row() + m.kv_heads * m.d * m.row(), vectors * m.row(),
                      2 * vectors * m.d * m.d};
    return ops.compute(Kind::kIndex, label, work, {ops.ready()});
  }
};

Fields<LokiSetting> loki_fields() {
  using S = LokiSetting;
  return Fields<S>()
      .add(budget_parameter("k: tokens attended to per selecting head"), &S::budget)
      .add(whole("dims", 32, "dimensions",
                 "r: leading principal components read by the estimate, at most the head dimension", 1, 65536),
           &S::dims)
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent)
      .add(group_parameter(
               {"sum_scores", "mean_scores", "max_scores", "sum_weights", "mean_weights", "max_weights", "per_head"}),
           &S::group)
      .add(whole("calibration_tokens", 0, "tokens",
                 "first prompt tokens from whose keys the principal components are computed; 0: all of them"),
           &S::calibration)
      .add(basis_parameter("source of the principal components"))
      .add(choice("calibrate_on", {"keys", "keys_before_rope"},
                  "keys whose components are used: as cached, or before rotary position embedding"),
           &S::before_rope);
}

Stages make_loki(const ParameterValues& values) {
  LokiSetting s = loki_fields().read(values);
  s.basis = load_basis(values, basis_kind(s.before_rope));
  if (s.basis != nullptr && values.given("calibration_tokens")) {
    throw UserError(values.where("calibration_tokens"), "the components are those of `basis`, not of prompt tokens");
  }
  check_quota(values, {s.budget, s.sink, s.recent});
  return {keep_all(), std::make_unique<Loki>(s)};
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "loki";
  d.sentence = "Keeps everything on the GPU and finds tokens by the leading principal components of the keys.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Singhania et al., Loki, NeurIPS 2024 (arXiv 2406.02542)";
  d.parameters = loki_fields().parameters();
  d.budget_convention = "per KV head, or per query head with group: per_head";
  d.formulas = {"traffic: n_kv·L·r·b + n_kv·d²·b + 2·n·budget·d·b per step, n = n_q per head, otherwise n_kv",
                "storage: 2·n_kv·L·d·b + n_kv·d²·b"};
  d.differences = {
      "components are computed from the prompt's own keys; the paper calibrates once on WikiText-103, which fits less "
      "well: basis: FILE, measured on other traces",
      "the released code selects per query head: group: per_head",
      "r is a number of dimensions; the released code can derive it from a share of explained variance"};
  d.stages = make_loki;
  return d;
}

}  // namespace kvcast::policy::loki
