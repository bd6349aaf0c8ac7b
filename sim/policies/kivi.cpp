// KIVI (Liu et al., "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache", ICML 2024, arXiv 2402.02750; code:
// jy-yuan/KIVI).
//
// Idea: outliers of keys are in fixed channels, those of values are not. Keys are quantised by channel over groups of
// tokens, values by token over groups of channels; the newest tokens stay in half precision.
// Selection: all tokens, or those of `selector`, whose index is over the unquantised keys.
// State when a step attends to n tokens: keys of the first R·⌊(n − 1) / R⌋ tokens are packed, a block of R at a time,
// and values of all but the last R + 1, one token per step. Keys are quantised after RoPE; prefill attention is exact.
// Cost: packed pairs read, (bits / 8 + 4 / group) bytes per element with a scale and a minimum of two bytes per group,
// and the others at 2 bytes; dequantisation within the attention kernel; one key and one value quantised per step.
// Storage: the same bytes.
#include "policies/kivi.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policies/composition.hpp"
#include "policy/costs.hpp"
#include "policy/forwarded_ops.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy {
namespace {

class KiviHead final : public HeadRetrievalBy<KiviSetting> {
 public:
  KiviHead(const LayerInput& input, int kv_head, const TokenList& tokens, const KiviSetting& setting,
           std::unique_ptr<HeadRetrieval> selector)
      : HeadRetrievalBy(input, kv_head, tokens, setting),
        selector_(std::move(selector)),
        packed_keys_(pack_keys()),
        packed_values_(pack_values()),
        products_({packed_keys_.data(), packed_keys_.size() / d_, d_, d_}, input.info().decode_steps, members_,
                  [this](int t, std::size_t member, std::span<float> out) {
                    std::copy_n(layer_.decode_query(q_head(member), t), d_, out.data());
                  }) {}

  void step(int t, std::span<HeadSelection> out) override {
    if (selector_ == nullptr) {
      tokens_.append_all(t, out[0].attended);
      return attend(t, tokens_.size(t));
    }
    selector_->step(t, out);
    if (!selector_->output(0).empty()) {
      throw UserError(
          "kivi's selector computes its own attention outputs, which quantised pairs would change (sparq: mean_value: "
          "false)");
    }
    attend_to_selected(t, out);
  }

  std::span<const float> output(int member) const override {
    if (outputs_.empty()) return {};
    return {outputs_.data() + index(member) * d_, d_};
  }

 private:
  int q_head(std::size_t member) const { return kv_head_ * static_cast<int>(members_) + static_cast<int>(member); }

  std::vector<float> listed(const MatrixView& rows, std::int64_t n) const {
    std::vector<float> out;
    out.reserve(index(n) * d_);
    for (std::int64_t i = 0; i < n; ++i) {
      const float* const row = rows.row(index(tokens_.position(i)));
      out.insert(out.end(), row, row + d_);
    }
    return out;
  }

  // Quantised keys of all tokens that are packed by the last step.
  std::vector<float> pack_keys() const {
    const std::int64_t n = s_.packed_keys(tokens_.size(layer_.info().decode_steps - 1));
    std::vector<float> keys = listed(layer_.keys(kv_head_), n);
    for (std::int64_t first = 0; first < n; first += s_.group) {
      float* const block = keys.data() + index(first) * d_;
      for (std::size_t j = 0; j < d_; ++j) quantise(block + j, s_.group, d_, s_.key_bits);
    }
    return keys;
  }

  std::vector<float> pack_values() const {
    const std::int64_t n = s_.packed_values(tokens_.size(layer_.info().decode_steps - 1));
    std::vector<float> values = listed(layer_.values(kv_head_), n);
    const auto width = static_cast<std::int64_t>(d_);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < width; j += s_.group) {
        quantise(values.data() + i * width + j, std::min(s_.group, width - j), 1, s_.value_bits);
      }
    }
    return values;
  }

  void attend(int t, std::int64_t n) {
    const std::int64_t keys = s_.packed_keys(n), values = s_.packed_values(n);
    if (keys == 0 && values == 0) return;
    const auto count = index(n), packed = index(values);
    weights_.resize(members_ * count);
    outputs_.assign(members_ * d_, 0.0f);
    for (std::size_t g = 0; g < members_; ++g) {
      const std::span row(weights_.data() + g * count, count);
      if (keys > 0) std::copy_n(products_.row(t, g).data(), keys, row.data());
      const float* const exact = layer_.decode_scores(q_head(g)).row(index(t));
      for (std::int64_t i = keys; i < n; ++i) row[index(i)] = exact[tokens_.position(i)];
      softmax(row, 1.0f / std::sqrt(static_cast<float>(d_)));
    }
    if (values > 0) {
      multiply({weights_.data(), members_, packed, count}, {packed_values_.data(), packed, d_, d_}, outputs_.data(),
               d_);
    }
    for (std::int64_t i = values; i < n; ++i) {
      const float* const value = layer_.values(kv_head_).row(index(tokens_.position(i)));
      for (std::size_t g = 0; g < members_; ++g) {
        const float weight = weights_[g * count + index(i)];
        for (std::size_t j = 0; j < d_; ++j) outputs_[g * d_ + j] += weight * value[j];
      }
    }
  }

  // Attends to one list of positions for all query heads, or to one list for each.
  void attend_to_selected(int t, std::span<const HeadSelection> selected) {
    const std::int64_t n = tokens_.size(t), keys = s_.packed_keys(n), values = s_.packed_values(n);
    outputs_.assign(members_ * d_, 0.0f);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d_));
    for (std::size_t g = 0; g < members_; ++g) {
      const std::vector<std::int32_t>& list = selected[selected.size() == 1 ? 0 : g].attended;
      if (list.empty()) continue;
      const float* const exact = layer_.decode_scores(q_head(g)).row(index(t));
      const float* const packed = keys > 0 ? products_.row(t, g).data() : nullptr;
      weights_.resize(list.size()), indices_.resize(list.size());
      std::int64_t at = 0;  // index in the list of tokens, which ascends like the selection
      for (std::size_t i = 0; i < list.size(); ++i) {
        while (tokens_.position(at) != list[i]) ++at;
        indices_[i] = at;
        weights_[i] = at < keys ? packed[at] : exact[list[i]];
      }
      softmax(weights_, scale);
      float* const out = outputs_.data() + g * d_;
      for (std::size_t i = 0; i < list.size(); ++i) {
        const float* const value = indices_[i] < values ? packed_values_.data() + index(indices_[i]) * d_
                                                        : layer_.values(kv_head_).row(index(list[i]));
        for (std::size_t j = 0; j < d_; ++j) out[j] += weights_[i] * value[j];
      }
    }
  }

  std::unique_ptr<HeadRetrieval> selector_;
  std::vector<float> packed_keys_, packed_values_;  // dequantised, by index in the list
  StepScores products_;
  std::vector<float> weights_, outputs_;
  std::vector<std::int64_t> indices_;
};

// A selector's work, with attention that reads fewer bytes per element and unpacks some.
class PackedAttention final : public ForwardedOps {
 public:
  // share: bytes read, as a share of those in half precision; packed: share of the elements that are packed.
  PackedAttention(LayerOps& ops, double share, double packed) : ForwardedOps(ops), share_(share), packed_(packed) {}
  OpId attention(const DecodeAttention& work, After after) override {
    DecodeAttention packed = work;
    packed.element_bytes *= share_, packed.unit_bytes *= share_;
    packed.unpack_flops = kUnpack * packed_ * work.kv_reads * 2 * work.tokens * work.head_dim;
    return ForwardedOps::attention(packed, after);
  }

 private:
  // Operations to unpack an element: extract its bits, convert them, multiply by the scale, add the minimum.
  static constexpr double kUnpack = 4;

  double share_, packed_;
};

class Kivi final : public Retrieval {
 public:
  Kivi(const KiviSetting& setting, std::unique_ptr<Retrieval> selector)
      : s_(setting), selector_(std::move(selector)), all_(selector_ ? nullptr : read_all()) {}

  bool per_query_head() const override { return inner().per_query_head(); }

  std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                       const Lengths& request) const override {
    return std::make_unique<KiviHead>(layer, kv_head, tokens, s_,
                                      selector_ ? selector_->begin(layer, kv_head, tokens, request) : nullptr);
  }

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    const Dims m(*shape.model);
    inner().build_cost(shape, kept, ops);
    quantise_pairs(shape.batch * m.kv_heads * kept, m, ops);
  }

  // The newest of a head's attended tokens are charged in half precision, as if the attended tokens were the whole
  // cache.
  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double heads = shape.heads.size();
    quantise_pairs(shape.per_query_head ? heads / m.group : heads, m, ops);
    double bytes = 0, elements = 0;
    for (const HeadCounts& head : shape.heads) {
      bytes += s_.bytes(head.attended, shape.model->head_dim);
      elements += s_.packed(head.attended);
    }
    const double attended = shape.sum(&HeadCounts::attended);
    PackedAttention packed(ops, attended > 0 ? bytes / (2 * attended * m.row()) : 1,
                           attended > 0 ? elements / (2 * attended) : 0);
    inner().decode_cost(shape, packed);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    return inner().memory(shape, tokens);
  }

  double stored_share(const config::Model& model, double tokens) const override {
    if (tokens < 1) return 1;
    return s_.bytes(tokens, model.head_dim) / (2 * tokens * Dims(model).row());
  }

  Growth growth(const Lengths& request) const override { return inner().growth(request); }
  void check(const Lengths& request) const override { inner().check(request); }

 private:
  // Reads keys and values of `pairs` tokens and writes them packed.
  OpId quantise_pairs(double pairs, const Dims& m, LayerOps& ops) const {
    const double out = pairs * m.d * (s_.packed_bytes(s_.key_bits) + s_.packed_bytes(s_.value_bits));
    // FLOP: minimum, maximum, scale, rounding.
    const Kernel work{KernelClass::kConvert, pairs * 2 * m.row(), out, 4 * pairs * 2 * m.d};
    return ops.compute(Kind::kConvert, "quantise", work, {ops.ready()});
  }

  const Retrieval& inner() const { return selector_ ? *selector_ : *all_; }

  KiviSetting s_;
  std::unique_ptr<Retrieval> selector_, all_;
};

}  // namespace

double KiviSetting::packed(double tokens) const {
  const auto n = static_cast<std::int64_t>(tokens);
  return n < 1 ? 0 : static_cast<double>(packed_keys(n) + packed_values(n));
}

double KiviSetting::bytes(double tokens, int head_dim) const {
  const double n = std::floor(tokens);
  if (n < 1) return 0;
  const double keys = packed_keys(static_cast<std::int64_t>(n));
  const double values = packed_values(static_cast<std::int64_t>(n));
  constexpr double kHalf = config::Model::kElementBytes;
  return head_dim *
         (keys * packed_bytes(key_bits) + values * packed_bytes(value_bits) + (2 * tokens - keys - values) * kHalf);
}

void quantise(float* x, std::int64_t count, std::size_t stride, int bits) {
  float low = x[0], high = x[0];
  for (std::int64_t i = 1; i < count; ++i) {
    const float value = x[index(i) * stride];
    low = std::min(low, value), high = std::max(high, value);
  }
  const float levels = static_cast<float>((1 << bits) - 1), scale = (high - low) / levels;
  if (scale == 0) return;
  for (std::int64_t i = 0; i < count; ++i) {
    float& value = x[index(i) * stride];
    value = std::clamp(std::nearbyint((value - low) / scale), 0.0f, levels) * scale + low;
  }
}

std::unique_ptr<Retrieval> read_quantised(const KiviSetting& setting, std::unique_ptr<Retrieval> selector) {
  return std::make_unique<Kivi>(setting, std::move(selector));
}

namespace {

Fields<KiviSetting> kivi_fields() {
  using S = KiviSetting;
  return Fields<S>()
      .add(whole("key_bits", 2, "bits", "bits of a packed key element", 1, 8), &S::key_bits)
      .add(whole("value_bits", 2, "bits", "bits of a packed value element", 1, 8), &S::value_bits)
      .add(whole("quant_group", 32, "elements", "tokens of a key channel, or channels of a value, that share a scale",
                 1, 65536),
           &S::group)
      .add(whole("residual", 32, "tokens", "R: newest tokens kept in half precision; a multiple of quant_group", 1),
           &S::residual);
}

}  // namespace

KiviSetting read_kivi(const ParameterValues& values) {
  const KiviSetting s = kivi_fields().read(values);
  if (s.residual % s.group != 0) {
    throw UserError(values.where("residual"),
                    fmt::format("residual ({}) must be a multiple of quant_group ({})", s.residual, s.group));
  }
  return s;
}

std::vector<Parameter> quantisation_parameters() {
  std::vector<Parameter> all = kivi_fields().parameters();
  all.insert(all.begin(),
             choice("quantisation", {"none", "kivi"}, "format of the kept pairs: as they are, or packed like KIVI's"));
  return all;
}

std::unique_ptr<Retrieval> read_as_stored(const ParameterValues& values) {
  return values.text("quantisation") == "kivi" ? read_quantised(read_kivi(values)) : read_all();
}

namespace kivi {

Descriptor describe() {
  Descriptor d;
  d.name = "kivi";
  d.sentence = "Keeps and reads all pairs, most of them in few bits: keys by channel, values by token.";
  d.packs_cache = true;
  d.category = Category::kQuantisation;
  d.no_ends = "its selector takes them; nothing is dropped without one";
  d.paper = "Liu et al., KIVI, ICML 2024 (arXiv 2402.02750)";
  d.parameters = kivi_fields().parameters();
  d.parameters.push_back(policy_parameter("selector", "full", "policy that keeps and selects the packed pairs"));
  d.formulas = {
      "traffic: n_kv·[(L − r_k) + (L − r_v)]·d·(bits/8 + 4/group) + n_kv·(r_k + r_v)·d·2 per step, r_k = ((L − 1) mod "
      "R) + 1, r_v = min(L, R + 1)",
      "arithmetic: 4 operations to unpack an element, on the vector units, concurrent with the reads; products on "
      "tensor cores",
      "storage: the same bytes"};
  d.differences = {
      "a residual of 32 tokens, as in the released example; the paper's runs on LongBench have 128: residual: 128",
      "scales and minima are not rounded to half precision",
      "a selector's index is over the keys before quantisation, and its selection is charged as if the newest residual "
      "tokens in it were in half precision"};
  d.needs = [](const ParameterValues&, const Lengths&) {
    return ReplayNeeds{.rounds = true, .unseen = kRoundingUnseen};
  };
  d.stages = [](const ParameterValues& values) {
    const KiviSetting setting = read_kivi(values);
    if (values.text("selector") == "full") return Stages{keep_all(), read_quantised(setting)};
    Stages inner = read_stages(values, "selector");
    if (inner.first->per_query_head()) {
      throw UserError(values.where("selector"), "pairs are packed by KV head: group must not be per_head");
    }
    return Stages{std::move(inner.first), read_quantised(setting, std::move(inner.second))};
  };
  return d;
}

}  // namespace kivi

}  // namespace kvcast::policy
