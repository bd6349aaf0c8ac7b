// Twilight (Lin et al., "Twilight: Adaptive Attention Sparsity with Hierarchical Top-p Pruning", NeurIPS 2025, arXiv
// 2502.02770).
//
// Idea: the number of tokens that a query needs differs by head and step; a share of the attention (top-p) adapts to
// it, a number of tokens (top-k) does not.
// Selection in each step: `selector` selects generously. Of its tokens every query head takes the fewest whose
// estimated weights, softmax of q·k̂/√d with k̂ the key in `bits` bits (a scale and a minimum per token), add up to at
// least `p`. A KV head reads the tokens that any of its query heads takes.
// Cost: that of the selector; the packed keys of its selection, n_kv·chosen·(d·bits/8 + 4) bytes; a search for the
// weight at which the share is reached, `kPasses` passes over the weights; attention 2·n_kv·attended·d·b. One key is
// packed per step. All in sequence.
// Storage: the selector's + n_kv·L·(d·bits/8 + 4).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policies/composition.hpp"
#include "policies/kivi.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy/forwarded_ops.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::twilight {
namespace {

constexpr double kPasses = 16;  // passes of a binary search for a weight in half precision

struct TwilightSetting {
  double p = 0;
  int bits = 4;
  // Bytes of a packed key with its scale and minimum.
  double key_bytes(const Dims& m) const { return m.d * bits / 8 + 4; }
};

class TwilightHead final : public HeadRetrieval {
 public:
  TwilightHead(const LayerInput& input, int kv_head, const TwilightSetting& setting,
               std::unique_ptr<HeadRetrieval> selector)
      : layer_(input.layer()), kv_head_(kv_head), s_(setting), selector_(std::move(selector)) {
    const MatrixView keys = layer_.keys(kv_head);
    d_ = keys.cols;
    for (std::size_t i = 0; i < keys.rows; ++i) {
      packed_.insert(packed_.end(), keys.row(i), keys.row(i) + d_);
      quantise(packed_.data() + i * d_, d_, 1, s_.bits);
    }
  }

  void step(int t, std::span<HeadSelection> out) override {
    selector_->step(t, out);
    if (!selector_->output(0).empty()) {
      throw UserError(
          "twilight's selector computes its own attention outputs, which differ from those of the remaining tokens "
          "(sparq: mean_value: false)");
    }
    const int each = layer_.info().group() / static_cast<int>(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::vector<std::int32_t> chosen = std::move(out[i].attended);
      std::vector<char> taken(chosen.size());
      for (int g = 0; g < each; ++g) take(t, static_cast<int>(i) * each + g, chosen, taken);
      out[i].attended.clear();
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        if (taken[j] != 0) out[i].attended.push_back(chosen[j]);
      }
      out[i].counts.candidates = chosen.size();
    }
  }

 private:
  // Marks the fewest of `chosen` whose weights reach the share; ties go to the lower position.
  void take(int t, int member, const std::vector<std::int32_t>& chosen, std::vector<char>& taken) {
    const float* const query = layer_.decode_query(kv_head_ * layer_.info().group() + member, t);
    weights_.clear();
    for (const std::int32_t i : chosen) weights_.push_back(dot(query, &packed_[index(i) * d_], d_));
    softmax(weights_, 1 / std::sqrt(static_cast<float>(d_)));
    order_.resize(chosen.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return weights_[a] > weights_[b]; });
    double sum = 0;
    for (std::size_t i = 0; i < order_.size() && (i == 0 || sum < s_.p); ++i) {
      taken[order_[i]] = 1;
      sum += weights_[order_[i]];
    }
  }

  const trace::Layer& layer_;
  int kv_head_;
  TwilightSetting s_;
  std::unique_ptr<HeadRetrieval> selector_;
  std::size_t d_ = 0;
  std::vector<float> packed_, weights_;  // packed_: [positions × d], dequantised keys
  std::vector<std::size_t> order_;
};

// A selector's work, with the pruning before its attention.
class PrunedAttention final : public ForwardedOps {
 public:
  PrunedAttention(LayerOps& ops, const DecodeLayer& shape, const TwilightSetting& setting)
      : ForwardedOps(ops), shape_(shape), s_(setting) {}

  OpId attention(const DecodeAttention& work, After after) override {
    const Dims m(*shape_.model);
    const double chosen = shape_.sum(&HeadCounts::candidates);
    if (chosen <= 0) return ForwardedOps::attention(work, after);
    const double weights = chosen * (shape_.per_query_head ? 1 : m.group);
    // FLOP: products, and unpacking.
    const Kernel estimate{KernelClass::kScore, chosen * s_.key_bytes(m), weights * kScoreBytes,
                          (2 * weights + 4 * chosen) * m.d};
    OpId op = ForwardedOps::kernel(Lane::kCompute, Kind::kScore, "weights of packed keys", estimate, after);
    const Kernel search{KernelClass::kReduce, weights * kScoreBytes, chosen * kIndexBytes, kPasses * weights};
    op = ForwardedOps::kernel(Lane::kCompute, Kind::kTopK, "top-p", search, {op});
    return ForwardedOps::attention(work, {op});
  }

 private:
  const DecodeLayer& shape_;
  TwilightSetting s_;
};

class Twilight final : public Retrieval {
 public:
  Twilight(const TwilightSetting& setting, std::unique_ptr<Retrieval> selector)
      : s_(setting), selector_(std::move(selector)) {}

  bool per_query_head() const override { return selector_->per_query_head(); }

  std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                       const Lengths& request) const override {
    return std::make_unique<TwilightHead>(layer, kv_head, s_, selector_->begin(layer, kv_head, tokens, request));
  }

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    selector_->build_cost(shape, kept, ops);
    pack(shape.batch * Dims(*shape.model).kv_heads * kept, *shape.model, ops);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    pack(shape.batch * Dims(*shape.model).kv_heads, *shape.model, ops);
    PrunedAttention pruned(ops, shape, s_);
    selector_->decode_cost(shape, pruned);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    const Dims m(*shape.model);
    std::vector<MemoryItem> items = selector_->memory(shape, tokens);
    const double keys = shape.batch * shape.model->layers * m.kv_heads * tokens;
    items.push_back(in_hbm(Owner::kPackedKeys, keys * s_.key_bytes(m)));
    return items;
  }

  // The number of tokens that reach the share is that of the replay.
  Growth growth(const Lengths& request) const override {
    const Growth inner = selector_->growth(request);
    return {.scored = inner.fill >= request.bound() ? 0 : inner.scored};  // a selector that covers all scores nothing
  }
  void check(const Lengths& request) const override { selector_->check(request); }

 private:
  void pack(double keys, const config::Model& model, LayerOps& ops) const {
    const Dims m(model);
    // FLOP: minimum, maximum, scale, rounding.
    const Kernel work{KernelClass::kConvert, keys * m.row(), keys * s_.key_bytes(m), 4 * keys * m.d};
    ops.compute(Kind::kConvert, "pack keys", work, {ops.ready()});
  }

  TwilightSetting s_;
  std::unique_ptr<Retrieval> selector_;
};

Fields<TwilightSetting> twilight_fields() {
  using S = TwilightSetting;
  return Fields<S>()
      .add(real("p", 0.85, "share of the estimated attention over the selector's tokens that is kept"), &S::p)
      .add(whole("bits", 4, "bits", "bits of a key's element in the estimate of weights", 1, 8), &S::bits);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "twilight";
  d.sentence = "Reads the fewest tokens of another policy's selection that make up a share of the attention.";
  d.category = Category::kGpuRetrieval;
  d.no_ends = "its selector takes them";
  d.paper = "Lin et al., Twilight, NeurIPS 2025 (arXiv 2502.02770)";
  d.parameters = twilight_fields().parameters();
  d.parameters.push_back(policy_parameter("selector", "quest", "policy whose selection is pruned"));
  d.formulas = {"traffic: the selector's estimate + n_kv·chosen·(d·bits/8 + 4) + 2·n_kv·attended·d·b per step",
                "storage: the selector's + n_kv·L·(d·bits/8 + 4)"};
  d.differences = {
      "a KV head reads the tokens that any of its query heads takes, as a kernel for grouped queries must; the "
      "released "
      "accuracy code selects and prunes for each query head alone, which attends to about 30 % fewer tokens",
      "the search for the threshold weight ends at the exact token; the released kernel stops at a tolerance",
      "attention with different numbers of tokens per head is charged by their sum and the longest row"};
  d.stages = [](const ParameterValues& values) {
    Stages inner = read_stages(values, "selector");
    if (inner.first->per_query_head()) {
      throw UserError(values.where("selector"), "keys are packed by KV head: group must not be per_head");
    }
    return Stages{std::move(inner.first),
                  std::make_unique<Twilight>(twilight_fields().read(values), std::move(inner.second))};
  };
  return d;
}

}  // namespace kvcast::policy::twilight
