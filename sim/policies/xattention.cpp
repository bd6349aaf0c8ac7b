// XAttention (Xu et al., "XAttention: Block Sparse Attention with Antidiagonal Scoring", ICML 2025, arXiv 2503.16428;
// code: mit-han-lab/x-attention).
//
// Idea: every line of a block of attention crosses its antidiagonals, so that their sums show which blocks matter.
// Selection, for each query head: queries and keys are divided into pieces of `stride` tokens and concatenated, those
// of a query piece in reverse, so that one product of σ·d elements is the sum of an antidiagonal. Scores over √d·σ, a
// causal softmax over the key pieces, summed within blocks of `tile` = 128 tokens. A block of queries computes the
// first and its own key block and, until they contain `threshold` of its mass, the best of the others.
// Decoding is that of `then`: the cache is complete.
// Cost per query head: S²·d/σ flops for the estimate, a softmax over S²/(2·σ²) scores, a sort of each row of blocks;
// attention 4·d flops for each remaining pair, as counted by the replay, or as `density` states.
// The trace must contain all prompt queries, unless `density` is given; at most 64 blocks of queries, evenly spaced,
// are examined.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policies/prompt_sparsity.hpp"
#include "policy/costs.hpp"
#include "policy/weights.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::xattention {
namespace {

constexpr std::int64_t kSampledBlocks = 64;

struct XattentionSetting {
  std::int64_t stride = 8, block = 128;
  double threshold = 0.9;
  std::optional<double> density;  // measured on the trace if empty
};

// Masses of the key blocks of a query block, for one of the prompt's query heads.
class Estimate {
 public:
  Estimate(const trace::Layer& layer, int q_head, const XattentionSetting& setting)
      : layer_(layer), s_(setting), queries_(layer.queries(q_head)), keys_(layer.keys(q_head / layer.info().group())) {
    const std::int64_t prompt = layer.info().prompt_tokens;
    wide_ = index(s_.stride) * keys_.cols;
    pieces_ = index((prompt + s_.stride - 1) / s_.stride);
    laid_keys_.assign(pieces_ * wide_, 0.0f);  // the missing tokens of an incomplete last piece are zeros
    for (std::int64_t i = 0; i < prompt; ++i) {
      std::copy_n(keys_.row(index(i)), keys_.cols, laid_keys_.data() + index(i) * keys_.cols);
    }
  }

  // Returns for each key block, including its own, whether query block `block` computes it.
  std::vector<char> blocks(std::int64_t block) const {
    std::vector<double> mass = masses(block);
    const double wanted = s_.threshold * std::accumulate(mass.begin(), mass.end(), 0.0);
    std::vector<char> out(mass.size(), 0);
    out.front() = out.back() = 1;
    double held = mass.front() + (mass.size() > 1 ? mass.back() : 0);
    std::vector<std::size_t> order;
    for (std::size_t i = 1; i + 1 < mass.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return mass[a] > mass[b]; });
    for (const std::size_t i : order) {
      if (held >= wanted) break;
      out[i] = 1, held += mass[i];
    }
    return out;
  }

 private:
  std::vector<double> masses(std::int64_t block) const {
    const std::int64_t prompt = layer_.info().prompt_tokens, each = s_.block / s_.stride;
    const std::int64_t first = block * each, end = std::min(static_cast<std::int64_t>(pieces_), first + each);
    std::vector<float> laid(index(end - first) * wide_, 0.0f), scores(index(end - first) * index(end));
    for (std::int64_t m = first; m < end; ++m) {
      for (std::int64_t u = 0; u < s_.stride; ++u) {
        const std::int64_t position = m * s_.stride + s_.stride - 1 - u;
        if (position >= prompt) continue;
        std::copy_n(queries_.row(index(position)), keys_.cols,
                    laid.data() + index(m - first) * wide_ + index(u) * keys_.cols);
      }
    }
    multiply_transposed({laid.data(), index(end - first), wide_, wide_}, {laid_keys_.data(), index(end), wide_, wide_},
                        scores.data(), index(end));
    const double scale = 1 / (std::sqrt(static_cast<double>(keys_.cols)) * static_cast<double>(s_.stride));
    std::vector<double> mass(index(block + 1), 0.0);
    for (std::int64_t m = first; m < end; ++m) {
      const std::span row(scores.data() + index(m - first) * index(end), index(m + 1));
      softmax(row, static_cast<float>(scale));
      for (std::int64_t n = 0; n <= m; ++n) mass[index(n / each)] += static_cast<double>(row[index(n)]);
    }
    return mass;
  }

  const trace::Layer& layer_;
  const XattentionSetting& s_;
  MatrixView queries_, keys_;
  std::size_t wide_ = 0, pieces_ = 0;
  std::vector<float> laid_keys_;
};

class XAttention final : public SparsePrompt {
 public:
  XAttention(const XattentionSetting& setting, std::unique_ptr<Policy> inner, const SourceLocation& where)
      : SparsePrompt(std::move(inner), where), s_(setting) {}

  PromptAttention prompt_attention(const LayerInput& input) const override {
    const trace::TraceInfo& info = input.info();
    if (s_.density) return {};
    require_prompt_queries(info, 0, "xattention scores the blocks of all prompt queries (or give its density)");
    PromptAttention out{true, 0, 0};
    for (int q = 0; q < info.n_q_heads; ++q) {
      const Estimate estimate(input.layer(), q, s_);
      out.density += density_of(estimate, info.prompt_tokens) / info.n_q_heads;
      std::int64_t known = -1;
      std::vector<char> row;
      const double recall = prompt_recall(input.layer(), q, [&](std::int64_t i, std::int64_t j) {
        if (i / s_.block != known) known = i / s_.block, row = estimate.blocks(known);
        return row[index(j / s_.block)] != 0;
      });
      out.recall_mass += recall / info.n_q_heads;
    }
    return out;
  }

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    const Dims m(*chunk.model);
    const double heads = chunk.batch * m.q_heads, keys = chunk.held + chunk.length();
    const auto stride = static_cast<double>(s_.stride), block = static_cast<double>(s_.block);
    const double scores = heads * chunk.pairs() / (stride * stride), rows = heads * std::ceil(chunk.length() / block);
    PrefillChunk whole = chunk;
    whole.density = 1;
    PrefillAttention estimate = causal_attention(whole);
    estimate.flops = 2 * heads * chunk.pairs() * m.d / stride;
    estimate.write_bytes = scores * kScoreBytes;
    OpId op = ops.compute(Kind::kIndex, "antidiagonal scores", estimate, {ops.ready()});
    const double sums = rows * std::ceil(keys / block) * kScoreBytes;
    const Kernel softmax{KernelClass::kReduce, 2 * scores * kScoreBytes, sums, 4 * scores};
    op = ops.compute(Kind::kIndex, "softmax, block sums", softmax, {op});
    const double columns = std::ceil(keys / block);
    op = ops.compute(Kind::kIndex, "sort blocks", TopK{rows, columns, columns, kScoreBytes}, {op});
    PrefillChunk left = chunk;
    if (s_.density) left.density = *s_.density;
    return sparse_attention(left, ops, op);
  }

 private:
  double density_of(const Estimate& estimate, std::int64_t prompt) const {
    const std::int64_t blocks = (prompt + s_.block - 1) / s_.block, sampled = std::min(blocks, kSampledBlocks);
    double kept = 0, all = 0;
    for (std::int64_t k = 1; k <= sampled; ++k) {
      const std::int64_t b = k * blocks / sampled - 1, first = b * s_.block, end = std::min(prompt, first + s_.block);
      const double rows = end - first;
      const std::vector<char> row = estimate.blocks(b);
      const double before = std::count(row.begin(), row.end() - 1, 1) * s_.block;
      kept += rows * before + causal_pairs(end - first);
      all += rows * first + causal_pairs(end - first);
    }
    return kept / all;
  }

  XattentionSetting s_;
};

Fields<XattentionSetting> xattention_fields() {
  using S = XattentionSetting;
  return Fields<S>()
      .add(then_parameter())
      .add(whole("stride", 8, "tokens", "σ: tokens between the antidiagonals that are summed", 1, 65536), &S::stride)
      .add(whole("tile", 128, "tokens", "queries and keys of a block, a multiple of stride", 1, 65536), &S::block)
      .add(real("threshold", 0.9, "smallest share of its estimated mass that a block of queries computes"),
           &S::threshold)
      .add(real_or("density", "trace", "share of the causal pairs computed: measured on the trace, or a given number",
                   0, 1),
           &S::density);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "xattention";
  d.sentence =
      "Computes the blocks of the prompt's attention whose antidiagonals have the largest sums; another policy handles "
      "decoding.";
  d.category = Category::kSparsePrefill;
  d.no_ends = "the policy of `then` takes them";
  d.paper = "Xu et al., XAttention, ICML 2025 (arXiv 2503.16428)";
  d.parameters = xattention_fields().parameters();
  d.formulas = {"prompt, per query head: S²·d/σ FLOP for the estimate, S²/(2·σ²) scores, 4·d FLOP per remaining pair",
                "traffic of a step and storage: those of `then`"};
  d.differences = {
      "one threshold for all heads; the released code can read one per head",
      "with a given density the share of the prompt's attention mass is unknown and not stated",
      "keys and values of later layers are those of the trace, without the effect of sparse attention on them"};
  d.needs = [](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.whole_prompt = !xattention_fields().read(values).density, .unseen = kSparsePromptUnseen};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    const XattentionSetting s = xattention_fields().read(values);
    if (s.block % s.stride != 0) {
      throw UserError(values.where("tile"),
                      fmt::format("tile ({}) must be a multiple of stride ({})", s.block, s.stride));
    }
    return std::make_unique<XAttention>(s, read_then(values), values.where("then"));
  };
  return d;
}

}  // namespace kvcast::policy::xattention
