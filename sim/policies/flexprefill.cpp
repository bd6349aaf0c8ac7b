// FlexPrefill (Lai et al., "FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient Long-Sequence
// Inference", ICLR 2025, arXiv 2502.20766; code: ByteDance-Seed/FlexPrefill, flex_prefill_attention.py).
//
// Idea: each head computes as many blocks as it needs to reach a share γ of its attention, on vertical and slash lines
// or, where means of blocks predict its attention well, on the blocks that these means select.
// Selection, for each query head, in blocks of `tile` queries and keys: A = softmax weights of the last `tile` prompt
// queries, mean over them. √JS(softmax of their mean · mean keys of blocks, A summed by block) < τ: query-aware head.
// Otherwise its ⌊n_c / 128⌋ + 1 best block columns by A, n_c the fewest keys that contain more than γ of A, and as many
// block diagonals by A's sums along diagonals; at least ⌈min_budget / tile⌉ of each, the first column and the main
// diagonal among them. A query-aware head has the least number of both and, of all causal pairs of blocks, the best by
// softmax(mean query · mean key / √d) over each row, as long as their sum is at most γ times the number of rows.
// Prompts up to 2·tile or min_budget tokens are dense. Decoding is that of `then`: the cache is complete.
// Cost per query head: A 2·tile·S·d FLOP, S·d·b read, scores in single precision; two sorts of S; keys and queries
// pooled, (S / tile)² scores sorted; attention 4·d FLOP for each remaining pair, as counted by the replay.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/index.hpp"
#include "policies/prompt_sparsity.hpp"
#include "policy/costs.hpp"
#include "policy/weights.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::flexprefill {
namespace {

constexpr std::int64_t kLineTokens = 128;  // lines of a block in the released code, whatever the block's size

struct FlexSetting {
  std::int64_t block = 128, least = 512;
  double gamma = 0.9, tau = 0.1;

  std::int64_t blocks_of(std::int64_t tokens) const { return (tokens + block - 1) / block; }
  bool dense(std::int64_t prompt) const { return prompt <= std::max(2 * block, blocks_of(least) * block); }
};

double divergence(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double mean = (p[i] + q[i]) / 2;
    if (p[i] > 0) sum += p[i] * std::log(p[i] / mean) / 2;
    if (q[i] > 0) sum += q[i] * std::log(q[i] / mean) / 2;
  }
  return std::sqrt(std::max(0.0, sum));
}

// Indices in descending order of their numbers.
std::vector<std::size_t> descending(std::span<const double> numbers) {
  std::vector<std::size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return numbers[a] > numbers[b]; });
  return order;
}

void normalise(std::span<double> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  for (double& x : logits) x = std::exp(x - top);
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0);
  for (double& x : logits) x /= sum;
}

// The pairs of blocks that one query head computes.
class FlexPattern {
 public:
  FlexPattern(const trace::Layer& layer, int q_head, const FlexSetting& setting)
      : layer_(layer),
        q_head_(q_head),
        s_(setting),
        prompt_(layer.info().prompt_tokens),
        blocks_(index(s_.blocks_of(prompt_))),
        kept_(blocks_ * blocks_) {
    std::vector<double> columns(index(prompt_)), diagonals(index(prompt_));  // diagonals: the main one is the last
    Held all(index(prompt_));
    std::iota(all.begin(), all.end(), 0);
    const double share = 1 / static_cast<double>(s_.block);
    visit_prompt_rows(layer, q_head, prompt_ - s_.block, prompt_, all,
                      [&](std::int64_t i, std::span<const float> weights) {
                        const std::size_t shift = index(prompt_ - 1 - i);
                        for (std::size_t j = 0; j < weights.size(); ++j) {
                          columns[j] += share * weights[j];
                          diagonals[j + shift] += share * weights[j];
                        }
                      });
    const std::vector<std::vector<double>> keys = means(layer.keys(q_head / layer.info().group()), 0);
    const std::vector<double> mass = by_block(columns);
    const bool aware = s_.tau > 0 && divergence(predicted(keys), mass) < s_.tau;
    const std::size_t least = std::min(index(s_.blocks_of(s_.least)), blocks_);
    keep_columns(mass, aware ? least : lines(columns, least));
    keep_diagonals(by_block(diagonals), aware ? least : lines(diagonals, least));
    if (aware) keep_predicted(keys);
  }

  bool keeps(std::int64_t query, std::int64_t key) const {
    return kept_[index(query / s_.block) * blocks_ + index(key / s_.block)] != 0;
  }

  double pairs() const {
    double sum = 0;
    for (std::size_t i = 0; i < blocks_; ++i) {
      const std::int64_t first = static_cast<std::int64_t>(i) * s_.block, rows = std::min(s_.block, prompt_ - first);
      for (std::size_t j = 0; j <= i; ++j) {
        if (kept_[i * blocks_ + j] == 0) continue;
        sum += j == i ? causal_pairs(rows) : static_cast<double>(rows * s_.block);
      }
    }
    return sum;
  }

 private:
  std::vector<double> by_block(std::span<const double> tokens) const {
    std::vector<double> out(blocks_);
    for (std::size_t i = 0; i < tokens.size(); ++i) out[i / index(s_.block)] += tokens[i];
    return out;
  }

  // Number of block columns or diagonals.
  std::size_t lines(std::span<const double> mass, std::size_t least) const {
    double sum = 0;
    std::int64_t within = 0;
    for (const std::size_t i : descending(mass)) {
      sum += mass[i];
      if (sum > s_.gamma) break;
      ++within;
    }
    return std::clamp(index((within + 1) / kLineTokens + 1), least, blocks_);
  }

  // Means of the vectors of each block from position `first` on.
  std::vector<std::vector<double>> means(const MatrixView& rows, std::int64_t first) const {
    std::vector<std::vector<double>> out;
    for (std::int64_t begin = first; begin < prompt_; begin += s_.block) {
      std::vector<double>& mean = out.emplace_back(rows.cols);
      const std::int64_t end = std::min(prompt_, begin + s_.block);
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::size_t j = 0; j < rows.cols; ++j) {
          mean[j] += static_cast<double>(rows.row(index(i))[j]) / static_cast<double>(end - begin);
        }
      }
    }
    return out;
  }

  double score(const std::vector<double>& query, const std::vector<double>& key) const {
    return std::inner_product(query.begin(), query.end(), key.begin(), 0.0) /
           std::sqrt(static_cast<double>(query.size()));
  }

  // Weights of blocks of keys by the mean of the last queries.
  std::vector<double> predicted(const std::vector<std::vector<double>>& keys) const {
    const std::vector<double> query = means(layer_.queries(q_head_), prompt_ - s_.block).front();
    std::vector<double> out;
    for (const auto& key : keys) out.push_back(score(query, key));
    normalise(out);
    return out;
  }

  void keep_columns(std::vector<double> mass, std::size_t count) {
    mass.front() = std::numeric_limits<double>::infinity();
    const std::vector<std::size_t> order = descending(mass);
    for (std::size_t c = 0; c < count; ++c) {
      for (std::size_t i = order[c]; i < blocks_; ++i) kept_[i * blocks_ + order[c]] = 1;
    }
  }

  void keep_diagonals(std::vector<double> mass, std::size_t count) {
    mass.back() = std::numeric_limits<double>::infinity();
    const std::vector<std::size_t> order = descending(mass);
    for (std::size_t c = 0; c < count; ++c) {
      const std::size_t below = blocks_ - 1 - order[c];
      for (std::size_t i = below; i < blocks_; ++i) kept_[i * blocks_ + i - below] = 1;
    }
  }

  void keep_predicted(const std::vector<std::vector<double>>& keys) {
    const std::vector<std::vector<double>> rows = means(layer_.queries(q_head_), 0);
    std::vector<double> weights(blocks_ * blocks_);
    for (std::size_t i = 0; i < blocks_; ++i) {
      const std::span row(weights.data() + i * blocks_, i + 1);
      for (std::size_t j = 0; j <= i; ++j) row[j] = score(rows[i], keys[j]);
      normalise(row);
    }
    double sum = 0;
    for (const std::size_t pair : descending(weights)) {
      sum += weights[pair];
      if (sum > s_.gamma * blocks_ || weights[pair] == 0) break;
      kept_[pair] = 1;
    }
  }

  const trace::Layer& layer_;
  int q_head_;
  const FlexSetting& s_;
  std::int64_t prompt_;
  std::size_t blocks_;
  std::vector<char> kept_;  // [query blocks × key blocks]
};

class FlexPrefill final : public SparsePrompt {
 public:
  FlexPrefill(const FlexSetting& setting, std::unique_ptr<Policy> inner, const SourceLocation& where)
      : SparsePrompt(std::move(inner), where), s_(setting) {}

  PromptAttention prompt_attention(const LayerInput& input) const override {
    const trace::TraceInfo& info = input.info();
    if (s_.dense(info.prompt_tokens)) return {};
    require_prompt_queries(info, s_.tau > 0 ? 0 : info.prompt_tokens - s_.block,
                           "flexprefill reads the means of all blocks of prompt queries (tau: 0: of the last alone)");
    PromptAttention out{true, 0, 0};
    for (int q = 0; q < info.n_q_heads; ++q) {
      const FlexPattern pattern(input.layer(), q, s_);
      out.density += pattern.pairs() / causal_pairs(info.prompt_tokens) / info.n_q_heads;
      const auto keeps = [&](std::int64_t i, std::int64_t j) { return pattern.keeps(i, j); };
      out.recall_mass += prompt_recall(input.layer(), q, keeps) / info.n_q_heads;
    }
    return out;
  }

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    const Dims m(*chunk.model);
    const double keys = chunk.held + chunk.length();
    if (s_.dense(static_cast<std::int64_t>(keys))) return sparse_attention(chunk, ops, ops.ready());
    const double heads = chunk.batch * m.q_heads, rows = heads * s_.block;
    OpId op = sum_last_queries(m, heads, rows, keys, ops);
    op = ops.compute(Kind::kIndex, "sort lines", TopK{2 * heads, keys, keys, kScoreBytes}, {op});
    const double blocks = std::ceil(keys / s_.block), kv = chunk.batch * m.kv_heads;
    const double pooled = (kv + (s_.tau > 0 ? heads : 0)) * m.row();
    op = ops.compute(Kind::kIndex, "means of blocks", Kernel{KernelClass::kReduce, pooled * keys, pooled * blocks},
                     {op});
    if (s_.tau > 0) {
      const double pairs = heads * blocks * blocks;
      const Kernel products{KernelClass::kScore, (heads + kv) * blocks * m.row(), pairs * kScoreBytes, 2 * pairs * m.d};
      op = ops.compute(Kind::kIndex, "scores of blocks", products, {op});
      op = ops.compute(Kind::kIndex, "sort blocks", TopK{heads, blocks * blocks, blocks * blocks, kScoreBytes}, {op});
    }
    return sparse_attention(chunk, ops, op);
  }

 private:
  FlexSetting s_;
};

Fields<FlexSetting> flexprefill_fields() {
  using S = FlexSetting;
  return Fields<S>()
      .add(then_parameter())
      .add(real("gamma", 0.9, "γ: share of its attention that a head's lines or blocks contain"), &S::gamma)
      .add(real("tau", 0.1, "τ: distance of predicted and true attention below which a head is query-aware; 0: none"),
           &S::tau)
      .add(whole("min_budget", 512, "tokens", "least width of a head's columns, and of its diagonals", 1), &S::least)
      .add(whole("tile", 128, "tokens", "queries and keys of a block", 1, 65536), &S::block);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "flexprefill";
  d.sentence =
      "Computes as many lines or blocks of each head's attention over the prompt as hold a share of it; another policy "
      "handles decoding.";
  d.category = Category::kSparsePrefill;
  d.no_ends = "the policy of `then` takes them";
  d.paper = "Lai et al., FlexPrefill, ICLR 2025 (arXiv 2502.20766)";
  d.parameters = flexprefill_fields().parameters();
  d.formulas = {"prompt, per query head: 2·tile·S·d FLOP and S·d·b read for the lines, 4·d FLOP per remaining pair",
                "traffic of a step and storage: those of `then`"};
  d.differences = {
      "lines are counted in blocks of 128, as in the released code, whatever `tile` is",
      "work on means of blocks is charged to all heads, because a replay does not hand on how many are query-aware; "
      "the released loop over query-aware heads, which launches kernels for each, is left out",
      "keys and values of later layers are those of the trace, without the effect of sparse attention on them"};
  d.needs = [](const ParameterValues& values, const Lengths& lengths) {
    const FlexSetting s = flexprefill_fields().read(values);
    ReplayNeeds needs{.whole_prompt = s.tau > 0, .unseen = kSparsePromptUnseen};
    if (s.tau == 0) needs.window = std::min(s.block, lengths.prompt_tokens);
    return needs;
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    return std::make_unique<FlexPrefill>(flexprefill_fields().read(values), read_then(values), values.where("then"));
  };
  return d;
}

}  // namespace kvcast::policy::flexprefill
