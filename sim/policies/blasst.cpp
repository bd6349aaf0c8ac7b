// BLASST (Yuan et al., "BLASST: Dynamic Blocked Attention Sparsity via Softmax Thresholding", 2025, arXiv 2512.12087;
// shipped as skip softmax: TensorRT-LLM, FlashInfer's skip_softmax_threshold_scale_factor).
//
// Idea: attention takes the keys tile by tile and knows the largest score so far; a tile whose largest score is far
// below adds nothing to the output.
// Selection inside the kernel, for the rows that it takes together (a KV head's query heads in a step; `tile` queries
// of a head in the prompt): the values of a tile of keys are skipped if exp(its largest score − the largest before it)
// < λ in every row, λ = scale / context. The first tile is always taken. In a prompt, λ is that of its whole length.
// Cost: keys are read and multiplied by queries in any case; the values of skipped tiles are neither read nor
// multiplied: 2·n_kv·L·d·b·(1 − s/2) bytes and half of the FLOP for a share s of skipped tokens.
// Storage: 2·n_kv·L·d·b.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.hpp"
#include "policies/prompt_sparsity.hpp"
#include "policy/costs.hpp"
#include "policy/weights.hpp"
#include "policy_parts/pass_parts.hpp"
#include "policy_parts/policy_by.hpp"

namespace kvcast::policy::blasst {
namespace {

constexpr std::int64_t kSampledTiles = 16;  // tiles of queries of a prompt that are examined, evenly spaced

struct BlasstSetting {
  double prefill = 1000, decode = 500;
  std::int64_t tile = 128;
};

// For rows of scaled scores, of which row r sees its first seen(r): whether each tile of keys is taken.
template <typename Seen>
std::vector<char> taken_tiles(const MatrixView& rows, std::int64_t tile, double lambda, const Seen& seen) {
  const float least = static_cast<float>(std::log(lambda));
  std::vector<float> largest(rows.rows, -std::numeric_limits<float>::infinity());
  std::vector<char> taken;
  for (std::size_t first = 0; first < rows.cols; first += index(tile)) {
    bool any = false;
    for (std::size_t r = 0; r < rows.rows; ++r) {
      const std::size_t end = std::min(first + index(tile), seen(r));
      if (end <= first) continue;
      const float top = *std::max_element(rows.row(r) + first, rows.row(r) + end);
      any = any || !(top - largest[r] < least);
      largest[r] = std::max(largest[r], top);
    }
    taken.push_back(any ? 1 : 0);
  }
  return taken;
}

class BlasstSelector final : public Selector {
 public:
  BlasstSelector(const LayerInput& layer, const BlasstSetting& setting) : layer_(layer.layer()), s_(setting) {}

  void prefill(LayerSelection& resident) override {
    resident.reset(index(layer_.info().n_kv_heads), false);
    for (HeadSelection& head : resident.heads) append_range(0, layer_.info().prompt_tokens, head.attended);
  }

  void step(int t, LayerSelection& out) override {
    const trace::TraceInfo& info = layer_.info();
    const std::int64_t n = info.prompt_tokens + t + 1;
    const auto group = index(info.group()), all = index(n);
    const float scale = 1 / std::sqrt(static_cast<float>(info.head_dim));
    out.reset(index(info.n_kv_heads), false);
    scores_.resize(group * all);
    for (std::size_t h = 0; h < out.heads.size(); ++h) {
      for (std::size_t g = 0; g < group; ++g) {
        const float* const row = layer_.decode_scores(static_cast<int>(h * group + g)).row(index(t));
        std::transform(row, row + n, scores_.data() + g * all, [scale](float x) { return x * scale; });
      }
      const std::vector<char> taken =
          taken_tiles({scores_.data(), group, all, all}, s_.tile, s_.decode / static_cast<double>(n),
                      [all](std::size_t) { return all; });
      for (std::size_t b = 0; b < taken.size(); ++b) {
        const std::int64_t first = static_cast<std::int64_t>(b) * s_.tile;
        if (taken[b] != 0) append_range(first, std::min(n, first + s_.tile), out.heads[h].attended);
      }
      out.heads[h].counts.scored = n;
    }
  }

 private:
  const trace::Layer& layer_;
  BlasstSetting s_;
  std::vector<float> scores_;
};

class Blasst final : public SelectsBy<BlasstSelector, BlasstSetting> {
 public:
  using SelectsBy::SelectsBy;

  PromptAttention prompt_attention(const LayerInput& input) const override {
    const trace::TraceInfo& info = input.info();
    if (s_.prefill == 0) return {};
    require_prompt_queries(info, 0, "blasst skips tiles of the prompt's attention (or give scale_prefill: 0)");
    PromptAttention out{true, 0, 0};
    for (int q = 0; q < info.n_q_heads; ++q) add_prompt(input.layer(), q, out);
    return out;
  }

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    PrefillChunk half = chunk;
    half.density = (1 + chunk.density) / 2;  // the products of queries and keys are whole
    return ops.compute(Kind::kAttention, "prefill attention", causal_attention(half), {ops.ready()});
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const OtherCounts all(shape);
    DecodeAttention work = attention_over(all.shape(), 0);
    const double share = (1 + shape.sum(&HeadCounts::attended) / work.tokens) / 2;
    work.element_bytes *= share, work.converted *= share, work.unpack_flops *= share;
    work.product_dims = 2 * work.head_dim * share;
    ops.done(ops.attention(work, {ops.ready()}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, shape.tokens))};
  }
  Growth growth(const Lengths&) const override { return {.scored = 1, .proportional = true}; }

 private:
  // Adds a head's mean density and mass over the examined tiles of its queries.
  void add_prompt(const trace::Layer& layer, int q_head, PromptAttention& out) const {
    const trace::TraceInfo& info = layer.info();
    const std::int64_t prompt = info.prompt_tokens, tiles = (prompt + s_.tile - 1) / s_.tile;
    const std::int64_t sampled = std::min(tiles, kSampledTiles);
    const float scale = 1 / std::sqrt(static_cast<float>(info.head_dim));
    const MatrixView queries = layer.queries(q_head), keys = layer.keys(q_head / info.group());
    double pairs = 0, kept = 0, rows = 0, mass = 0;
    for (std::int64_t k = 1; k <= sampled; ++k) {
      const std::int64_t first = (k * tiles / sampled - 1) * s_.tile, end = std::min(prompt, first + s_.tile);
      const auto n = index(end - first), width = index(end);
      std::vector<float> scores(n * width);
      multiply_transposed({queries.row(index(first)), n, keys.cols, queries.stride},
                          {keys.row(0), width, keys.cols, keys.stride}, scores.data(), width);
      for (float& x : scores) x *= scale;
      const auto seen = [first](std::size_t r) { return index(first) + r + 1; };
      const std::vector<char> taken = taken_tiles({scores.data(), n, width, width}, s_.tile, s_.prefill / prompt, seen);
      for (std::size_t r = 0; r < n; ++r) {
        const std::span row(scores.data() + r * width, seen(r));
        softmax(row, 1);
        for (std::size_t j = 0; j < row.size(); ++j) {
          if (taken[j / index(s_.tile)] != 0) kept += 1, mass += row[j];
        }
        pairs += row.size(), rows += 1;
      }
    }
    out.density += kept / pairs / info.n_q_heads, out.recall_mass += mass / rows / info.n_q_heads;
  }
};

Fields<BlasstSetting> blasst_fields() {
  using S = BlasstSetting;
  return Fields<S>()
      .add(real("scale_prefill", 1000, "λ of the prompt times its length; 0: the prompt skips nothing", 0, 1e9),
           &S::prefill)
      .add(real("scale_decode", 500, "λ of a step times its context", 0.001, 1e9), &S::decode)
      .add(whole("tile", 128, "tokens", "keys, and queries of a prompt, that a kernel takes together", 1, 65536),
           &S::tile);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "blasst";
  d.sentence = "Reads all keys and skips the values of tiles whose scores are far below the largest so far.";
  d.category = Category::kGpuRetrieval;
  d.no_ends = "the kernel takes the first tile and skips others by their scores alone";
  d.paper = "Yuan et al., BLASST, 2025 (arXiv 2512.12087); TensorRT-LLM and FlashInfer, skip softmax";
  d.formulas = {"traffic: 2·n_kv·L·d·b·(1 − s/2) per step, s the share of skipped tokens",
                "prompt: 2·n_q·S²·d·(1 − s/2) FLOP", "storage: 2·n_kv·L·d·b"};
  d.differences = {
      "a sequence is one part: kernels that split it have a largest score for each part, and skip less",
      "scales are calibrated for a model and a share to skip; 1000 and 500 are assumed, of the order of those released",
      "at a longer context than the replay's the share of skipped tokens stays; what the test of a tile costs (about "
      "2 % published) is left out",
      "keys and values of later layers are those of the trace, without the effect of skipped tiles on them"};
  d.needs = [](const ParameterValues& values, const Lengths&) {
    ReplayNeeds needs;
    if (blasst_fields().read(values).prefill > 0) needs.whole_prompt = true, needs.unseen = kSparsePromptUnseen;
    return needs;
  };
  declare<Blasst>(d, blasst_fields());
  return d;
}

}  // namespace kvcast::policy::blasst
