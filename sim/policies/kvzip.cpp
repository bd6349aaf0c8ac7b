// KVzip (Kim et al., "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction", NeurIPS 2025, arXiv
// 2505.23416; code: snu-mllab/KVzip, NVIDIA/kvpress, kvzip_press.py).
//
// Idea: a pair that the model does not attend to while it repeats its context is not needed for any question about it,
// so that one compressed cache serves all questions.
// Selection, once after the prompt: the prompt is repeated in pieces of `chunk` tokens. A token's score is the largest
// weight that a query of a repeated token gives it, over the piece and the query heads of its group, in a softmax over
// the sink, the piece as cached and the piece as repeated so far. The first `sink` tokens and the best others are kept:
// n_kv·budget in all over the KV heads of the layer (scope: layer), or `budget` in each head.
// A trace does not contain the repetition. The prompt's own queries represent it: the query of token i, rotated from
// its position to the one at which i would be repeated, S + i − start of the piece; repeated keys likewise, so that a
// repeated query's products with them are those of the prompt.
// Cost: a second forward pass over the prompt, with attention over prompt and piece; scores n_q·S·2·chunk·4 bytes
// written and read; top-k; compaction. A step reads 2·n_kv·(budget + T)·d·b.
// Storage: the same.
#include "policies/kvzip.hpp"

#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/pre_rope.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "trace/rope.hpp"

namespace kvcast::policy {
namespace {

struct KvzipSetting {
  std::int64_t budget = 0, sink = 0, recent = 0, chunk = 1;
  bool by_head = false;
  Quota quota() const { return {budget, sink, recent}; }
};

class RepeatedContext {
 public:
  RepeatedContext(const trace::Layer& layer, int kv_head, std::int64_t sink, std::int64_t end)
      : layer_(layer), sink_(sink), end_(end), kv_head_(kv_head), d_(index(layer.info().head_dim)) {}

  // Raises the scores of tokens first … end − 1.
  void repeat(std::int64_t first, std::int64_t end, std::span<float> scores) const {
    const int group = layer_.info().group();
    for (int g = 0; g < group; ++g) repeat(kv_head_ * group + g, first, end, scores);
  }

 private:
  static constexpr std::size_t kRows = 128;  // queries at a time, whose scores stay in a core's cache

  // Rows first … end − 1.
  MatrixView part(MatrixView all, std::int64_t first, std::int64_t end) const {
    return {all.row(index(first)), index(end - first), d_, all.stride};
  }

  void repeat(int q_head, std::int64_t first, std::int64_t end, std::span<float> out) const {
    const auto n = index(end - first);
    const auto sink = index(std::min(sink_, first));
    const MatrixView keys = layer_.keys(kv_head_);
    const MatrixView queries = part(layer_.queries(q_head), first, end);
    std::vector<float> later(n * d_), rows(std::min(kRows, n) * (sink + 2 * n));
    trace::RotationTable table(trace_frequencies(layer_.info()));
    table.fill(end_ - first, 1);
    for (std::size_t i = 0; i < n; ++i) {
      std::copy_n(queries.row(i), d_, later.data() + i * d_);
      table.rotate(0, later.data() + i * d_);
    }
    const MatrixView turned{later.data(), n, d_, d_};
    const MatrixView piece = part(keys, first, end);
    const float scale = 1 / std::sqrt(static_cast<float>(d_));
    // A row has the sink, the piece as cached and the piece as repeated so far, of which the last rows see most.
    for (std::size_t begin = 0; begin < n; begin += kRows) {
      const std::size_t stop = std::min(n, begin + kRows), width = sink + n + stop;
      const auto of = [&](const MatrixView& all) { return MatrixView{all.row(begin), stop - begin, d_, all.stride}; };
      if (sink > 0) multiply_transposed(of(turned), part(keys, 0, sink), rows.data(), width);
      multiply_transposed(of(turned), piece, rows.data() + sink, width);
      multiply_transposed(of(queries), {piece.data, stop, d_, piece.stride}, rows.data() + sink + n, width);
      for (std::size_t i = begin; i < stop; ++i) {
        float* const row = rows.data() + (i - begin) * width;
        softmax({row, sink + n + i + 1}, scale);
        for (std::size_t j = 0; j < n; ++j) out[j] = std::max(out[j], row[sink + j]);
      }
    }
  }

  const trace::Layer& layer_;
  std::int64_t sink_, end_;  // end_: position of the repetition
  int kv_head_;
  std::size_t d_;
};

class Kvzip final : public Retention {
 public:
  explicit Kvzip(const KvzipSetting& setting) : s_(setting) {}

  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths&) const override {
    const trace::TraceInfo& info = layer.info();
    const auto prompt = index(info.prompt_tokens), heads = index(info.n_kv_heads);
    if (info.prompt_tokens <= s_.budget) return {};
    require_prompt_queries(info, 0, "kvzip repeats the prompt with its own queries");
    std::vector<float> all;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      std::vector<float> scores = repeated_weights(layer.layer(), h, s_.sink, s_.chunk, 0, info.prompt_tokens);
      rank_first(scores, index(s_.sink), index(s_.recent));
      all.insert(all.end(), scores.begin(), scores.end());
    }
    const auto budget = index(s_.budget);
    std::vector<std::vector<std::int32_t>> kept(heads);
    Ranking ranking;
    if (s_.by_head) {
      for (std::size_t h = 0; h < heads; ++h)
        ranking.select(std::span(all).subspan(h * prompt, prompt), budget, kept[h]);
      return kept;
    }
    std::vector<std::int32_t> best;
    ranking.select(all, budget * heads, best);
    for (const std::int32_t i : best) {
      kept[index(i) / prompt].push_back(static_cast<std::int32_t>(index(i) % prompt));
    }
    return kept;
  }

  std::int64_t kept(const Lengths& request) const override { return std::min(request.prompt_tokens, s_.budget); }

  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape, s_.budget);
    if (n == 0) return;
    const Dims m(*shape.model);
    const double rows = shape.batch * n, lists = shape.batch * m.kv_heads;
    const auto hidden = static_cast<double>(shape.model->hidden), ffn = static_cast<double>(shape.model->ffn);
    const double piece = std::min(n, static_cast<double>(s_.chunk));
    OpId op = ops.ready();
    const auto project = [&](const char* label, double out, double in) {
      op = ops.compute(Kind::kGemm, label, Gemm{rows, out, in}, {op});
    };
    project("repeat: queries, keys and values", (m.q_heads + 2 * m.kv_heads) * m.d, hidden);
    PrefillAttention attention;
    attention.flops = 4 * rows * m.q_heads * m.d * (n + (piece + 1) / 2);
    attention.read_bytes = rows * m.q_heads * m.row() + std::ceil(n / piece) * 2 * lists * (n + piece / 2) * m.row();
    attention.write_bytes = rows * m.q_heads * m.row();
    op = ops.compute(Kind::kAttention, "repeat: attention", attention, {op});
    project("repeat: output", hidden, m.q_heads * m.d);
    project("repeat: up and gate", 2 * ffn, hidden);
    project("repeat: down", hidden, ffn);
    const double weights = rows * m.q_heads * 2 * piece;
    op = ops.compute(Kind::kScore, "scores of the repeated prompt", Gemm{rows * m.q_heads, 2 * piece, m.d}, {op});
    // FLOP: maximum, difference and exponential, sum, division, maximum of a column.
    const Kernel largest{KernelClass::kReduce, weights * kScoreBytes, lists * n * kScoreBytes, 5 * weights};
    op = ops.compute(Kind::kScore, "largest weights", largest, {op});
    const double kept = s_.budget;
    const double ranked = s_.by_head ? lists : shape.batch, each = lists / ranked;
    rank_and_compact(*shape.model, ranked, lists, n * each, kept * each, kept, ops, op);
  }

 private:
  KvzipSetting s_;
};

Fields<KvzipSetting> kvzip_fields() {
  using S = KvzipSetting;
  return Fields<S>()
      .add(budget_parameter("prompt tokens kept per KV head, on average"), &S::budget)
      .add(whole("sink", 4, "tokens", "first tokens, which are kept; within the budget"), &S::sink)
      .add(recent_parameter(), &S::recent)
      .add(whole("chunk", 2048, "tokens", "piece of the prompt that is repeated at a time", 1, 16384), &S::chunk)
      .add(choice("scope", {"layer", "head"},
                  "scope of the competition between tokens: all KV heads of a layer, or each head"),
           &S::by_head);
}

}  // namespace

std::vector<float> repeated_weights(const trace::Layer& layer, int kv_head, std::int64_t sink, std::int64_t chunk,
                                    std::int64_t first, std::int64_t end) {
  const RepeatedContext context(layer, kv_head, sink, end);
  std::vector<float> out(index(end - first));
  for (std::int64_t piece = first; piece < end; piece += chunk) {
    const std::int64_t stop = std::min(piece + chunk, end);
    context.repeat(piece, stop, std::span(out).subspan(index(piece - first), index(stop - piece)));
  }
  return out;
}

namespace kvzip {

Descriptor describe() {
  Descriptor d;
  d.name = "kvzip";
  d.sentence =
      "Keeps the prompt tokens to which the model attends while it repeats its prompt, and all generated tokens.";
  d.category = Category::kDrop;
  d.paper = "Kim et al., KVzip, NeurIPS 2025 (arXiv 2505.23416)";
  d.parameters = kvzip_fields().parameters();
  d.budget_convention =
      "prompt tokens, including the sink, on average over the heads of a layer; generated tokens are kept in "
      "addition";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step",
                "prompt: a second forward pass, 4·n_q·S²·d FLOP of attention in it, and 4·n_q·S·chunk·d FLOP of scores",
                "storage: 2·n_kv·(min(S, budget) + T)·d·b"};
  d.differences = {
      "traces do not contain the repetition of the prompt: the prompt's own queries, rotated to the positions of the "
      "repeated tokens, replace those of the repetition; the instruction to repeat is left out",
      "in the released code layers compete with each other as well; here all layers keep the same number",
      "FastKVzip, which predicts these scores by trained gates, is not modelled; KVzap is a policy of its own"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    BudgetRule rule = evicts_once(values.integer("budget"));
    if (!kvzip_fields().read(values).by_head) rule.over = BudgetRule::Over::kLayer;
    return rule;
  };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.coupled = !kvzip_fields().read(values).by_head, .whole_prompt = true};
  };
  d.stages = [](const ParameterValues& values) {
    const KvzipSetting s = kvzip_fields().read(values);
    check_quota(values, s.quota());
    return Stages{std::make_unique<Kvzip>(s), read_all()};
  };
  return d;
}

}  // namespace kvzip

}  // namespace kvcast::policy
