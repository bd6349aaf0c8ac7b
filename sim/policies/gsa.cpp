// GSA on device (Huawei, ModelEngine-Group/unified-cache-management, ucm/sparse/gsa_on_device), the rule of HATA
// (arXiv 2506.02572) with random hash weights, as released for Qwen3.
//
// Idea: signs of random projections of a query and a key agree more often the more similar they are, so that a key can
// be rated by d bits of it.
// Selection in each step: a code is the signs of x·W, W a random orthogonal matrix of d × d. The query of a KV head is
// the mean of its group's. A token's distance is the number of bits in which its key's code and the query's differ, in
// the sum over the KV heads of the layer (scope: layer) or for each of them; a block of `page` tokens has the least of
// its tokens' distances. The blocks of the first `sink` and the last `recent` tokens and the nearest others are read,
// `budget` tokens in whole blocks, the last of which may not be full.
// Cost: queries and the new key through W; codes read, n_kv·L·d/8 bytes, three operations for 32 bits; top-k over
// L / page blocks; attention 2·n_kv·budget·d·b. All in sequence.
// Storage: 2·n_kv·L·d·b + n_kv·L·d/8.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/random.hpp"
#include "policy/costs.hpp"
#include "policy/pages.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::gsa {
namespace {

struct GsaSetting {
  std::int64_t budget = 8192, page = 128, sink = 1, recent = 129, dense_below = 2048, seed = 0;
  bool by_head = false;

  std::int64_t blocks() const { return budget / page; }
  std::int64_t dense() const { return std::max(budget, dense_below); }
};

// The rows are orthonormal: normal numbers, each row freed of the rows before it.
std::vector<float> random_rotation(std::size_t d, std::uint64_t seed) {
  const Stream stream(seed);
  std::vector<double> rows(d * d);
  std::vector<float> out;
  for (std::size_t i = 0; i < d; ++i) {
    double* const row = rows.data() + i * d;
    for (std::size_t j = 0; j < d; ++j) row[j] = stream.normal(i * d + j);
    const auto product = [d](const double* a, const double* b) { return std::inner_product(a, a + d, b, 0.0); };
    for (std::size_t k = 0; k < i; ++k) {
      const double* const before = rows.data() + k * d;
      const double along = product(row, before);
      for (std::size_t j = 0; j < d; ++j) row[j] -= along * before[j];
    }
    const double length = std::sqrt(product(row, row));
    for (std::size_t j = 0; j < d; ++j) out.push_back(static_cast<float>(row[j] /= length));
  }
  return out;
}

class GsaSelector final : public Selector {
 public:
  GsaSelector(const LayerInput& input, const GsaSetting& setting)
      : layer_(input.layer()),
        s_(setting),
        d_(index(input.info().head_dim)),
        words_((d_ + 63) / 64),
        rotation_(random_rotation(d_, setting.seed)) {
    for (int h = 0; h < input.info().n_kv_heads; ++h) codes_.push_back(codes_of(layer_.keys(h)));
  }

  void prefill(LayerSelection& resident) override {
    resident.reset(codes_.size(), false);
    for (HeadSelection& head : resident.heads) append_range(0, layer_.info().prompt_tokens, head.attended);
  }

  void step(int t, LayerSelection& out) override {
    const std::int64_t n = layer_.info().prompt_tokens + t + 1;
    out.reset(codes_.size(), false);
    distances_.assign(index(n), 0);
    for (std::size_t h = 0; h < codes_.size(); ++h) {
      if (n > s_.dense()) add_distances(h, t);
      if (!s_.by_head && h + 1 < codes_.size()) continue;
      choose(n, out.heads[h]);
      for (std::size_t other = 0; other < h && !s_.by_head; ++other) out.heads[other] = out.heads[h];
      distances_.assign(index(n), 0);
    }
  }

 private:
  std::vector<std::uint64_t> codes_of(const MatrixView& vectors) const {
    std::vector<float> projected(vectors.rows * d_);
    multiply_transposed(vectors, {rotation_.data(), d_, d_, d_}, projected.data(), d_);
    std::vector<std::uint64_t> codes(vectors.rows * words_);
    for (std::size_t i = 0; i < projected.size(); ++i) {
      if (projected[i] > 0) codes[i / d_ * words_ + i % d_ / 64] |= std::uint64_t{1} << (i % d_ % 64);
    }
    return codes;
  }

  void add_distances(std::size_t kv_head, int t) {
    const int group = layer_.info().group();
    std::vector<float> mean(d_);
    for (int g = 0; g < group; ++g) {
      const float* const query = layer_.decode_query(static_cast<int>(kv_head) * group + g, t);
      for (std::size_t j = 0; j < d_; ++j) mean[j] += query[j] / static_cast<float>(group);
    }
    const std::vector<std::uint64_t> code = codes_of({mean.data(), 1, d_, d_});
    for (std::size_t i = 0; i < distances_.size(); ++i) {
      for (std::size_t w = 0; w < words_; ++w) {
        distances_[i] += std::popcount(code[w] ^ codes_[kv_head][i * words_ + w]);
      }
    }
  }

  void choose(std::int64_t n, HeadSelection& head) {
    if (n <= s_.dense()) return append_range(0, n, head.attended);
    scores_.clear();
    for (std::int64_t first = 0; first < n; first += s_.page) {
      const std::int64_t end = std::min(n, first + s_.page);
      scores_.push_back(static_cast<float>(-*std::min_element(distances_.begin() + first, distances_.begin() + end)));
    }
    rank_pages_first(scores_, s_.page, n, s_.sink, s_.recent);
    ranking_.select(scores_, index(s_.blocks()), chosen_);
    append_page_tokens(chosen_, s_.page, 0, n, head.attended);
    head.counts.scored = n;
  }

  const trace::Layer& layer_;
  GsaSetting s_;
  std::size_t d_, words_;
  std::vector<float> rotation_;
  std::vector<std::vector<std::uint64_t>> codes_;  // by KV head: positions × words
  Ranking ranking_;
  std::vector<int> distances_;
  std::vector<float> scores_;
  std::vector<std::int32_t> chosen_;
};

class Gsa final : public SelectsBy<GsaSelector, GsaSetting> {
 public:
  using SelectsBy::SelectsBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    hash(m, shape.batch * static_cast<double>(shape.prompt_tokens) * m.kv_heads, "hash keys", ops, ops.ready());
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double heads = shape.batch * m.kv_heads, scored = shape.sum(&HeadCounts::scored);
    OpId op = hash(m, heads, "hash keys", ops, ops.ready());
    if (scored > 0) {
      const double bytes = heads * (m.group + 1) * m.d * config::Model::kElementBytes;
      op = ops.compute(Kind::kScore, "mean queries", Kernel{KernelClass::kReduce, bytes, bytes / (m.group + 1)}, {op});
      op = hash(m, heads, "hash queries", ops, op);
      const double lists = s_.by_head ? heads : shape.batch, distances = scored * lists / heads;
      constexpr double kOperations = 3, kBits = 32;
      const Kernel distance{KernelClass::kScore, scored * m.d / 8, distances * kScoreBytes,
                            kOperations * scored * m.d / kBits};
      op = ops.compute(Kind::kScore, "distances of codes", distance, {op});
      const double blocks = std::ceil(scored / heads / s_.page);
      const Kernel least{KernelClass::kReduce, distances * kScoreBytes, lists * blocks * kScoreBytes, distances};
      op = ops.compute(Kind::kScore, "least of blocks", least, {op});
      op = ops.compute(Kind::kTopK, "top-k", TopK{lists, blocks, static_cast<double>(s_.blocks()), kScoreBytes}, {op});
    }
    const double unit = scored > 0 ? s_.page * m.row() : 0;
    ops.done(ops.attention(attention_over(shape, unit), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const auto tokens = static_cast<double>(shape.tokens);
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, tokens)),
            in_hbm(Owner::kIndexKeys, shape.batch * shape.model->layers * m.kv_heads * tokens * m.d / 8)};
  }

  // The last block has half of its tokens on average.
  Growth growth(const Lengths&) const override {
    return {.scored = 1, .fill = s_.dense(), .when_full = s_.blocks() * s_.page - s_.page / 2};
  }

 private:
  static OpId hash(const Dims& m, double vectors, const char* label, LayerOps& ops, OpId after) {
    return ops.compute(Kind::kIndex, label, Gemm{vectors, m.d, m.d}, {after});
  }
};

const Fields<GsaSetting>& gsa_fields() {
  using S = GsaSetting;
  static const Fields<S> all =
      Fields<S>()
          .add(budget_parameter("tokens read, in whole blocks", 8192), &S::budget)
          .add(page_parameter(128), &S::page)
          .add(whole("sink", 1, "tokens", "first tokens, whose blocks are always read"), &S::sink)
          .add(whole("recent", 129, "tokens", "last tokens, whose blocks are always read"), &S::recent)
          .add(choice("scope", {"layer", "head"}, "heads that share a selection: those of a layer, or of a KV head"),
               &S::by_head)
          .add(whole("dense_below", 2048, "tokens", "context up to which all tokens are read"), &S::dense_below)
          .add(whole("seed", 0, "", "seed of the random matrix"), &S::seed);
  return all;
}

std::unique_ptr<Policy> make_gsa(const ParameterValues& values) {
  const GsaSetting s = gsa_fields().read(values);
  check_page(values.where("budget"), s.budget, s.page);
  check_pages_read(where_fixed(values), s.sink, s.recent, s.page, s.blocks());
  return std::make_unique<Gsa>(s);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "gsa";
  d.sentence = "Keeps everything on the GPU and reads the blocks whose keys' hash codes are nearest to the query's.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Huawei, GSA on device, 2026 (ModelEngine-Group/unified-cache-management); HATA, 2025 (arXiv 2506.02572)";
  d.parameters = gsa_fields().parameters();
  d.budget_convention = "tokens of whole blocks, including those of sink and recent tokens; the last may not be full";
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const GsaSetting s = gsa_fields().read(values);
    return chooses(s.dense(), s.blocks() * s.page, s.page - 1, lengths.prompt_tokens);
  };
  d.formulas = {"traffic: n_kv·L·d/8 + 2·n_kv·budget·d·b per step", "storage: 2·n_kv·L·d·b + n_kv·L·d/8"};
  d.differences = {
      "the random matrix is drawn anew by every process of the released code; here by `seed`",
      "blocks of equal distance go to the earlier; the released top-k leaves their order open",
      "layers that reuse a selection, dense last layers and the least number of concurrent sequences are left out; "
      "first_dense_layers states dense first layers"};
  d.make = make_gsa;
  return d;
}

}  // namespace kvcast::policy::gsa
