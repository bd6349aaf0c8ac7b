// MInference (Jiang et al., "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse
// Attention", NeurIPS 2024, arXiv 2407.02490; code: microsoft/MInference).
//
// Idea: a head's attention over the prompt is on a few vertical and slash lines, which the last queries show.
// Selection, for each query head: softmax weights of the last 64 prompt queries. Their sums by key give the `vertical`
// best columns, including the first 30; their sums by distance the `slash` best diagonals, including the nearest 100. A
// block of 64 queries from position a computes, for each diagonal at distance o, the 64 keys from a − o on, and the
// columns. If these keys begin in a stretch that is already computed, or right after it, and end beyond it, the stretch
// grows by a whole 64 keys, as in the released kernel. `pattern: a_shape`: the first `vertical` keys and the last
// `slash` before each query, without an index. Decoding is that of `then`: the cache is complete. Cost per query head:
// index 2·64·S·d flops, S·d·b read, two rankings of S; attention 4·d flops for each remaining pair, as counted by the
// replay.
#include <algorithm>
#include <numeric>

#include "base/index.hpp"
#include "policies/prompt_sparsity.hpp"
#include "policy/costs.hpp"
#include "policy/weights.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::minference {
namespace {

constexpr std::int64_t kBlock = 64;     // queries and keys of a block of the sparse kernel
constexpr std::int64_t kLooking = 64;   // last queries from which the index is made
constexpr std::int64_t kFirst = 30;     // columns that are always included
constexpr std::int64_t kNearest = 100;  // diagonals that are always included

struct MinferenceSetting {
  std::int64_t vertical = 0, slash = 0;
  bool a_shape = false;
  std::int64_t columns(std::int64_t prompt) const { return std::min(prompt, std::max(vertical, kFirst)); }
  std::int64_t diagonals(std::int64_t prompt) const { return std::min(prompt, std::max<std::int64_t>(slash, 50)); }
};

// Columns and blocks of one query head.
class Pattern {
 public:
  Pattern(std::int64_t prompt, std::vector<std::int32_t> columns, std::vector<std::int32_t> distances)
      : prompt_(prompt), columns_(std::move(columns)), distances_(std::move(distances)), is_column_(index(prompt)) {
    for (const std::int32_t j : columns_) is_column_[index(j)] = 1;
    std::sort(columns_.begin(), columns_.end());
    std::sort(distances_.rbegin(), distances_.rend());
  }

  struct Stretch {
    std::int64_t first, end;  // keys
  };
  // In ascending order, of the block of queries from position `first` on.
  std::vector<Stretch> stretches(std::int64_t first) const {
    std::vector<Stretch> out;
    for (const std::int32_t o : distances_) {
      if (o >= first + kBlock) continue;
      const std::int64_t end = std::max(first + kBlock - o, kBlock);
      if (out.empty() || end > out.back().end + kBlock) {
        out.push_back({end - kBlock, end});
      } else if (end > out.back().end) {
        out.back().end += kBlock;
      }
    }
    return out;
  }

  bool keeps(std::int64_t query, std::int64_t key, const std::vector<Stretch>& of_block) const {
    KVCAST_CHECK(key <= query);
    if (is_column_[index(key)]) return true;
    const auto after = std::ranges::upper_bound(of_block, key, {}, &Stretch::first);
    return after != of_block.begin() && key < std::prev(after)->end;
  }

  double pairs() const {
    double sum = 0;
    for (std::int64_t a = 0; a < prompt_; a += kBlock) {
      const std::int64_t end = std::min(prompt_, a + kBlock);
      const std::vector<Stretch> of_block = stretches(a);
      for (const Stretch& s : of_block) {
        for (std::int64_t i = a; i < end; ++i) sum += std::max<std::int64_t>(0, std::min(s.end, i + 1) - s.first);
      }
      auto next = of_block.begin();
      for (const std::int64_t j : columns_) {
        if (j >= end) break;
        while (next != of_block.end() && next->end <= j) ++next;
        if (next == of_block.end() || j < next->first) sum += end - std::max(a, j);
      }
    }
    return sum;
  }

 private:
  std::int64_t prompt_;
  std::vector<std::int32_t> columns_, distances_;  // ascending, descending
  std::vector<char> is_column_;
};

// The best k lines by their sums, including the first `certain`.
std::vector<std::int32_t> lines_of(std::vector<float> sums, std::int64_t certain, std::int64_t k) {
  const std::int64_t sure = std::min({certain, k, static_cast<std::int64_t>(sums.size())});
  std::vector<std::int32_t> out(index(sure)), rest;
  std::iota(out.begin(), out.end(), 0);
  Ranking().select(std::span<const float>(sums).subspan(index(sure)), index(k - sure), rest);
  for (const std::int32_t i : rest) out.push_back(i + static_cast<std::int32_t>(sure));
  return out;
}

Pattern vertical_slash(const trace::Layer& layer, int q_head, const MinferenceSetting& s) {
  const std::int64_t prompt = layer.info().prompt_tokens;
  Held all(index(prompt));
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> columns(index(prompt)), diagonals(index(prompt));
  visit_prompt_rows(layer, q_head, std::max<std::int64_t>(0, prompt - kLooking), prompt, all,
                    [&](std::int64_t i, std::span<const float> weights) {
                      for (std::size_t j = 0; j < weights.size(); ++j) {
                        columns[j] += weights[j];
                        diagonals[index(i) - j] += weights[j];
                      }
                    });
  return {prompt, lines_of(std::move(columns), kFirst, s.columns(prompt)),
          lines_of(std::move(diagonals), kNearest, s.diagonals(prompt))};
}

class MInference final : public SparsePrompt {
 public:
  MInference(const MinferenceSetting& setting, std::unique_ptr<Policy> inner, const SourceLocation& where)
      : SparsePrompt(std::move(inner), where), s_(setting) {}

  PromptAttention prompt_attention(const LayerInput& input) const override {
    const trace::TraceInfo& info = input.info();
    const std::int64_t prompt = info.prompt_tokens;
    if (!s_.a_shape) {
      require_prompt_queries(info, std::max<std::int64_t>(0, prompt - kLooking),
                             "minference derives its pattern from the last 64 queries of the prompt");
    }
    PromptAttention out{true, 0, 0};
    for (int q = 0; q < info.n_q_heads; ++q) {
      double pairs = 0, recall = 0;
      if (s_.a_shape) {
        for (std::int64_t i = 0; i < prompt; ++i) {
          pairs += std::min(i + 1, s_.vertical + s_.slash);
        }
        recall = prompt_recall(input.layer(), q,
                               [&](std::int64_t i, std::int64_t j) { return j < s_.vertical || i - j < s_.slash; });
      } else {
        const Pattern pattern = vertical_slash(input.layer(), q, s_);
        pairs = pattern.pairs();
        std::int64_t known = -1;
        std::vector<Pattern::Stretch> of_block;
        recall = prompt_recall(input.layer(), q, [&](std::int64_t i, std::int64_t j) {
          if (i / kBlock != known) known = i / kBlock, of_block = pattern.stretches(known * kBlock);
          return pattern.keeps(i, j, of_block);
        });
      }
      out.density += pairs / causal_pairs(prompt) / info.n_q_heads;
      out.recall_mass += recall / info.n_q_heads;
    }
    return out;
  }

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    if (s_.a_shape) return sparse_attention(chunk, ops, ops.ready());
    const Dims m(*chunk.model);
    const double heads = chunk.batch * m.q_heads, keys = chunk.held + chunk.length();
    const double rows = heads * std::min(static_cast<double>(kLooking), chunk.length());
    OpId op = sum_last_queries(m, heads, rows, keys, ops);
    const auto most = static_cast<std::int64_t>(keys);
    const double columns = static_cast<double>(s_.columns(most)), slashes = static_cast<double>(s_.diagonals(most));
    op = ops.compute(Kind::kIndex, "vertical lines", TopK{heads, keys, columns, kScoreBytes}, {op});
    op = ops.compute(Kind::kIndex, "slash lines", TopK{heads, keys, slashes, kScoreBytes}, {op});
    return sparse_attention(chunk, ops, op);
  }

 private:
  MinferenceSetting s_;
};

Fields<MinferenceSetting> minference_fields() {
  using S = MinferenceSetting;
  return Fields<S>()
      .add(then_parameter())
      .add(whole("vertical", 1000, "keys", "number of columns of a head; a_shape: number of first tokens"),
           &S::vertical)
      .add(whole("slash", 6096, "diagonals",
                 "number of diagonals of a head; a_shape: number of last tokens before each query", 1),
           &S::slash)
      .add(choice("pattern", {"vertical_slash", "a_shape"}, "pattern of all heads"), &S::a_shape);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "minference";
  d.sentence = "Computes the prompt's attention on a few vertical and slash lines; another policy handles decoding.";
  d.category = Category::kSparsePrefill;
  d.no_ends = "the policy of `then` takes them";
  d.paper = "Jiang et al., MInference 1.0, NeurIPS 2024 (arXiv 2407.02490)";
  d.parameters = minference_fields().parameters();
  d.formulas = {"prompt, per query head: 2·64·S·d FLOP and S·d·b read for the pattern, 4·d FLOP per remaining pair",
                "traffic of a step and storage: those of `then`"};
  d.differences = {
      "every head has the same number of lines; the released code assigns one of several sizes to each head (for "
      "Llama-3.1-8B six vertical-slash sizes, 1000 and 6096 in 279 of 1024 heads)",
      "block-sparse heads, of which that configuration has none, are not modelled",
      "keys and values of later layers are those of the trace, without the effect of sparse attention on them"};
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.unseen = kSparsePromptUnseen}; };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    return std::make_unique<MInference>(minference_fields().read(values), read_then(values), values.where("then"));
  };
  return d;
}

}  // namespace kvcast::policy::minference
