// R-KV (Cai et al., "R-KV: Redundancy-aware KV Cache Compression for Reasoning Models", 2025, arXiv 2505.24133; code:
// Zefan-Cai/R-KV).
//
// Idea: long reasoning repeats itself: of tokens with similar attention, those whose keys are similar to many others
// can be evicted.
// Selection, per KV head, whenever it has budget + buffer tokens: importance = softmax over the tokens before the last
// `window` of the largest q·k/√d of the group, mean over the last `window` queries, maximum over `pool_kernel`
// neighbours. Redundancy = softmax over all tokens of the mean cosine with the other keys, from which each row excludes
// the last key with a cosine above `similarity` (a row without one: the first key, as released). The last `window`
// tokens stay, and the best by lambda·importance − (1 − lambda)·redundancy, `budget` in all. A prompt of that many
// tokens is compressed at its end, or after each `block`.
// Cost of one compression of n tokens: all cosines, 2·n_kv·n²·d FLOP, written and read as n_kv·n²·4 bytes; window
// scores; top-k; compaction. It is spread evenly over the `buffer` steps between two of them.
// Storage: 2·n_kv·(budget + buffer)·d·b, the last `window` queries n_q·window·d·b.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/window.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::rkv {
namespace {

struct RkvSetting {
  std::int64_t budget = 0, buffer = 0, window = 0, block = 0, sink = 0, recent = 0;
  int pool_kernel = 1;
  double lambda = 0, similarity = 0;
  std::int64_t full() const { return budget + buffer; }
};

class RkvRule final : public EvictionRule {
 public:
  RkvRule(const trace::Layer& layer, const RkvSetting& setting) : layer_(layer), s_(setting) {
    const trace::TraceInfo& info = layer.info();
    if (info.positions() < s_.full()) return;
    const std::vector<std::int64_t> ends = prompt_ends(info, s_.block);
    const auto full = std::lower_bound(ends.begin(), ends.end(), s_.full());
    // First query of the first compression.
    const std::int64_t first = (full == ends.end() ? s_.full() : *full) - s_.window;
    if (first < info.prompt_tokens)
      require_prompt_queries(info, first, "rkv ranks by the last queries before each compression");
  }

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override { compress(end, held); }
  void after_step(int t, std::vector<Held>& held) override { compress(layer_.info().prompt_tokens + t + 1, held); }

 private:
  void compress(std::int64_t end, std::vector<Held>& held) {
    if (static_cast<std::int64_t>(held[0].size()) < s_.full()) return;
    for (std::size_t h = 0; h < held.size(); ++h) {
      score(static_cast<int>(h), end, held[h]);
      keep_best(held[h], scores_, {s_.budget, s_.sink, std::max(s_.window, s_.recent)});
    }
  }

  void score(int kv_head, std::int64_t end, const Held& held) {
    const std::vector<float> like = redundancy(layer_.keys(kv_head), held);
    rate(kv_head, end, held);
    pool(Pooling::kMax, s_.pool_kernel, rated_, pooled_);
    scores_.assign(held.size(), 0.0f);  // the window's own tokens are not scored
    const auto share = static_cast<float>(s_.lambda);
    for (std::size_t i = 0; i < pooled_.size(); ++i) scores_[i] = share * pooled_[i] - (1 - share) * like[i];
  }

  // Mean weights of the last queries on the tokens before the window.
  void rate(int kv_head, std::int64_t end, const Held& held) {
    const trace::TraceInfo& info = layer_.info();
    const auto d = index(info.head_dim);
    const std::size_t n = held.size() - index(s_.window);
    rated_.assign(n, 0.0f);
    for (std::int64_t position = end - s_.window; position < end; ++position) {
      const auto row = index(info.prompt_queries() - info.prompt_tokens + position);
      row_.assign(n, -std::numeric_limits<float>::infinity());
      for (int g = 0; g < info.group(); ++g) {
        const float* const query = layer_.queries(kv_head * info.group() + g).row(row);
        for (std::size_t i = 0; i < n; ++i) {
          row_[i] = std::max(row_[i], dot(query, layer_.keys(kv_head).row(index(held[i])), d));
        }
      }
      softmax(row_, 1 / std::sqrt(static_cast<float>(info.head_dim)));
      for (std::size_t i = 0; i < n; ++i) rated_[i] += row_[i] / static_cast<float>(s_.window);
    }
  }

  // A key's cosines with all others add up to one product, with the sum of all keys. Only the pairs that rows exclude
  // are looked for.
  std::vector<float> redundancy(const MatrixView& keys, const Held& held) const {
    const std::size_t n = held.size(), d = keys.cols;
    std::vector<float> unit(n * d), out(n);
    std::vector<double> sum(d), total(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float* const key = keys.row(index(held[i]));
      const float norm = std::sqrt(dot(key, key, d)) + 1e-8f;
      for (std::size_t j = 0; j < d; ++j) unit[i * d + j] = key[j] / norm, sum[j] += unit[i * d + j];
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < d; ++j) total[i] += (sum[j] - unit[i * d + j]) * unit[i * d + j];
    }
    const auto exclude = [&](std::size_t row, std::size_t key) {
      if (row != key) total[key] -= static_cast<double>(dot(&unit[row * d], &unit[key * d], d));
    };
    exclude_last({unit.data(), n, d, d}, exclude);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(total[i] / static_cast<double>(n));
    softmax(out);
    return out;
  }

  // Calls exclude(row, key) with the last other key whose cosine is above `similarity`, or the first key, for each row.
  // Looks at blocks of keys from the last to the first, each for the rows that have found none.
  template <class Exclude>
  void exclude_last(const MatrixView& unit, const Exclude& exclude) const {
    constexpr std::size_t kKeys = 256, kRows = 256;
    const std::size_t d = unit.cols;
    const auto least = static_cast<float>(s_.similarity);
    std::vector<std::size_t> open(unit.rows);  // rows that have found none
    std::iota(open.begin(), open.end(), std::size_t{0});
    std::vector<float> rows(kRows * d), cosines(kRows * kKeys);
    for (std::size_t end = unit.rows; end > 0 && !open.empty(); end -= std::min(end, kKeys)) {
      const std::size_t begin = end - std::min(end, kKeys), width = end - begin;
      std::size_t left = 0;
      for (std::size_t first = 0; first < open.size(); first += kRows) {
        const std::size_t n = std::min(kRows, open.size() - first);
        for (std::size_t i = 0; i < n; ++i) std::copy_n(unit.row(open[first + i]), d, rows.data() + i * d);
        multiply_transposed({rows.data(), n, d, d}, {unit.row(begin), width, d, d}, cosines.data(), width);
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t row = open[first + i];
          std::size_t key = end;
          while (key > begin && (key - 1 == row || !(cosines[i * width + key - 1 - begin] > least))) --key;
          if (key > begin) {
            exclude(row, key - 1);
          } else {
            open[left++] = row;
          }
        }
      }
      open.resize(left);
    }
    for (const std::size_t row : open) exclude(row, 0);
  }

  const trace::Layer& layer_;
  RkvSetting s_;
  std::vector<float> scores_, rated_, pooled_, row_;
};

class Rkv final : public PolicyBy<RkvSetting> {
 public:
  using PolicyBy::PolicyBy;

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return evicting_selector(layer, std::make_unique<RkvRule>(layer.layer(), s_), s_.block, false);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const std::int64_t n = std::min(shape.start, s_.full()) + shape.length();
    if (n < s_.full()) return;
    const double lists = shape.batch * Dims(*shape.model).kv_heads;
    const OpId op = score(*shape.model, lists, n, ops, ops.ready());
    rank_and_compact(*shape.model, lists, n, s_.budget, ops, op);
  }

  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths&) const override {
    return {.tokens = s_.block, .held = s_.budget, .from = s_.full()};
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    OpId op = ops.attention(attention_over(shape, 0), {ops.ready()});
    ops.done(op);
    // Only caches that become full are ever compressed.
    const double full = shape.sum_over([this](const Sequence& s) { return s.request.bound() >= s_.full() ? 1 : 0; });
    if (full == 0) return;
    const double lists = full * shape.heads_per_sequence() / s_.buffer;
    op = score(*shape.model, lists, s_.full(), ops, op);
    rank_and_compact(*shape.model, lists, s_.full(), s_.budget, ops, op);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const std::int64_t held = std::min(shape.tokens, s_.full());
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, held)),
            in_hbm(Owner::kLastQueries, shape.batch * shape.model->layers * m.q_heads * s_.window * m.row())};
  }

  // A full cache has between budget and budget + buffer tokens.
  Growth growth(const Lengths& request) const override {
    if (request.bound() < s_.full()) return {.attended = 1};
    return {.fill = s_.budget + s_.buffer / 2};
  }

 private:
  // Scores the tokens of `lists` lists of n keys each.
  OpId score(const config::Model& model, double lists, double n, LayerOps& ops, OpId after) const {
    const Dims m(model);
    after = ops.compute(Kind::kScore, "cosines of keys", Gemm{lists * n, n, m.d}, {after});
    // Compared with the threshold to find the last similar key, then averaged.
    const Kernel reduce{KernelClass::kReduce, 2 * lists * n * n * kScoreBytes, lists * n * kScoreBytes,
                        2 * lists * n * n};
    after = ops.compute(Kind::kScore, "mean cosine", reduce, {after});
    const double rows = lists * m.group * s_.window;
    const Kernel window{KernelClass::kScore, (lists * n + rows) * m.row(), lists * n * kScoreBytes, 2 * rows * n * m.d};
    return ops.compute(Kind::kScore, "window scores", window, {after});
  }
};

Fields<RkvSetting> rkv_fields() {
  using S = RkvSetting;
  return Fields<S>()
      .add(budget_parameter("tokens per KV head after a compression", 1024), &S::budget)
      .add(whole("buffer", 128, "tokens", "tokens in addition to the budget at which the cache is compressed", 1),
           &S::buffer)
      .add(whole("window", 8, "queries", "last queries that score the tokens before them; their own tokens are kept", 1,
                 65536),
           &S::window)
      .add(whole("pool_kernel", 7, "tokens", "width of the pooling of importance, odd", 1, 65535), &S::pool_kernel)
      .add(real("lambda", 0.07, "share of importance in a token's score; the rest is redundancy"), &S::lambda)
      .add(real("similarity", 0.5, "cosine above which two keys are similar", -1, 1), &S::similarity)
      .add(block_parameter(), &S::block)
      .add(sink_parameter(), &S::sink)
      .add(recent_parameter(), &S::recent);
}

std::unique_ptr<Policy> make_rkv(const ParameterValues& values) {
  const RkvSetting s = rkv_fields().read(values);
  if (s.pool_kernel % 2 == 0) throw UserError(values.where("pool_kernel"), "pool_kernel must be odd");
  if (s.window >= s.budget) {
    throw UserError(values.where(values.given("window") ? "window" : "budget"),
                    fmt::format("rkv: window ({}) must be smaller than the budget ({})", s.window, s.budget));
  }
  check_quota(values, {s.budget, s.sink, std::max(s.window, s.recent)});
  return std::make_unique<Rkv>(s);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "rkv";
  d.sentence =
      "Whenever a buffer is full, keeps tokens that recent queries attend to and whose keys are not redundant.";
  d.category = Category::kDrop;
  d.paper = "Cai et al., R-KV, 2025 (arXiv 2505.24133)";
  d.parameters = rkv_fields().parameters();
  d.budget_convention = "those left by a compression; a step attends to up to budget + buffer tokens";
  d.formulas = {"traffic: 2·n_kv·N·d·b per step, budget < N ≤ budget + buffer",
                "compression of n tokens: 2·n_kv·n²·d FLOP and 12·n_kv·n² bytes, every buffer-th step",
                "storage: 2·n_kv·(budget + buffer)·d·b + n_q·window·d·b"};
  d.differences = {
      "lambda is the released code's 0.07; the paper's experiments use 0.1",
      "a long prompt is compressed as soon as it has been read; the released code does so for its first sample "
      "alone, and for later ones waits until a buffer of generated tokens is full, then also compares all "
      "tokens with each other",
      "a compression is charged in equal parts to the steps between two compressions, so that short "
      "replays include its share"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const RkvSetting s = rkv_fields().read(values);
    return BudgetRule{
        .tokens = s.budget, .extra = s.buffer, .slack = s.buffer - 1, .counts = BudgetRule::Counts::kRetained};
  };
  d.needs = [](const ParameterValues& values, const Lengths&) {
    const RkvSetting s = rkv_fields().read(values);
    return ReplayNeeds{.whole_prompt = s.block > 0, .window = s.window};
  };
  d.make = make_rkv;
  return d;
}

}  // namespace kvcast::policy::rkv
