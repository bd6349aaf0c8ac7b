// KeyDiff (Park et al., "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in
// Resource-Constrained Environments", 2025, arXiv 2504.15364).
//
// Idea: keys that differ from the others receive attention from any query, so that selection needs no query.
// Selection, per KV head: score = −cos(anchor, key), anchor = mean of the normalised keys that the head keeps now; the
// `budget` highest scores stay. Evicts after each prompt block (`block`), and after each decode step, which attends to
// budget + 1 tokens. `recent_fraction` of the budget is a sliding window that is never evicted; the anchor is the mean
// of all held keys, including those of the window. With `share` in place of a budget, a head keeps that share of all
// tokens seen so far, after the prompt and after every `interval` steps (kvpress, compression_ratio_decoding_press.py).
// Cost of ranking n keys: about 6·n·d FLOP per head (count_keydiff). Keys are read twice after a prompt block (anchor,
// then scores) and once in a decode step, in which the running anchor gains one key and loses one; `pairwise`
// multiplies all keys with all. No attention weights are written: attention is as fast as over a full cache of that
// size.
// Storage: 2·n_kv·(budget + 1)·d·b.
#include "policies/keydiff.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

constexpr double kLeastNorm = 1e-12;  // a zero key is similar to nothing

double norm_of(const float* key, std::size_t d) { return std::sqrt(static_cast<double>(dot(key, key, d))); }

// Σ of the held keys, each divided by its norm first if `normalised`.
std::vector<float> sum_keys(const MatrixView& keys, const Held& held, bool normalised) {
  std::vector<double> sum(keys.cols, 0.0);
  for (const std::int32_t i : held) {
    const float* const key = keys.row(index(i));
    const double weight = normalised ? 1 / std::max(norm_of(key, keys.cols), kLeastNorm) : 1;
    for (std::size_t j = 0; j < keys.cols; ++j) sum[j] += weight * static_cast<double>(key[j]);
  }
  return {sum.begin(), sum.end()};
}

std::vector<float> median_key(const MatrixView& keys, const Held& held) {
  std::vector<float> median(keys.cols), column(held.size());
  const auto middle = column.begin() + static_cast<std::ptrdiff_t>(held.size() / 2);
  for (std::size_t j = 0; j < keys.cols; ++j) {
    for (std::size_t i = 0; i < held.size(); ++i) column[i] = keys.row(index(held[i]))[j];
    std::nth_element(column.begin(), middle, column.end());
    median[j] = *middle;
    if (held.size() % 2 == 0) median[j] = (median[j] + *std::max_element(column.begin(), middle)) / 2;
  }
  return median;
}

double distance(const float* a, const float* b, std::size_t d) {
  float partial[kSimdWidth] = {};
  std::size_t j = 0;
  for (; j + kSimdWidth <= d; j += kSimdWidth) {
    for (std::size_t l = 0; l < kSimdWidth; ++l) partial[l] += (a[j + l] - b[j + l]) * (a[j + l] - b[j + l]);
  }
  for (; j < d; ++j) partial[0] += (a[j] - b[j]) * (a[j] - b[j]);
  double sum = 0;
  for (const float p : partial) sum += static_cast<double>(p);
  return std::sqrt(sum);
}

// Σ of the distances of each held key to all of them, by ‖a‖² + ‖b‖² − 2·a·b: a matrix product instead of n² loops.
void sum_distances(const MatrixView& keys, const Held& held, std::vector<float>& out) {
  constexpr std::size_t kRows = 256;
  const std::size_t n = held.size(), d = keys.cols;
  std::vector<float> rows, squares, products(std::min(kRows, n) * n);
  for (const std::int32_t i : held) {
    const float* const key = keys.row(index(i));
    rows.insert(rows.end(), key, key + d);
    squares.push_back(dot(key, key, d));
  }
  out.assign(n, 0.0f);
  for (std::size_t first = 0; first < n; first += kRows) {
    const std::size_t count = std::min(kRows, n - first);
    multiply_transposed({rows.data() + first * d, count, d, d}, {rows.data(), n, d, d}, products.data(), n);
    for (std::size_t i = 0; i < count; ++i) {
      const float own = squares[first + i];
      float* const row = products.data() + i * n;
      for (std::size_t j = 0; j < n; ++j) row[j] = std::sqrt(std::max(0.0f, own + squares[j] - 2 * row[j]));
      row[first + i] = 0;
      double sum = 0;
      for (std::size_t j = 0; j < n; ++j) sum += static_cast<double>(row[j]);
      out[first + i] = static_cast<float>(sum);
    }
  }
}

// Cosines and dot products with all keys can be summed by one product with their sum; distances cannot.
std::vector<float> anchor_of(const MatrixView& keys, const Held& held, Anchor anchor, Metric metric) {
  if (anchor == Anchor::kMedian) return median_key(keys, held);
  const bool pairwise = anchor == Anchor::kPairwise;
  std::vector<float> sum = sum_keys(keys, held, pairwise ? metric == Metric::kCosine : anchor == Anchor::kMean);
  if (!pairwise) {
    for (float& x : sum) x /= static_cast<float>(held.size());
  }
  return sum;
}

double similarity(const float* key, const std::vector<float>& anchor, double anchor_norm, Metric metric) {
  const std::size_t d = anchor.size();
  if (metric == Metric::kEuclid) return -distance(key, anchor.data(), d);
  const double product = dot(key, anchor.data(), d);
  if (metric == Metric::kDot) return product;
  return product / (std::max(norm_of(key, d), kLeastNorm) * anchor_norm);
}

// The negated similarity of each held key to an anchor.
void score_to(const MatrixView& keys, const Held& held, const std::vector<float>& anchor, Metric metric,
              std::vector<float>& out) {
  const double norm = std::max(norm_of(anchor.data(), anchor.size()), kLeastNorm);
  out.resize(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    out[i] = static_cast<float>(-similarity(keys.row(index(held[i])), anchor, norm, metric));
  }
}

struct KeyDiffSetting {
  Quota quota;
  std::int64_t block = 0;
  double recent_fraction = 0;  // share of the budget, instead of quota.recent
  double share = 0;            // of all tokens seen, instead of quota.budget
  std::int64_t interval = 1;   // steps from one eviction to the next, with a share
  Anchor anchor = Anchor::kMean;
  Metric metric = Metric::kCosine;

  // Tokens that stay of `seen`.
  std::int64_t budget(std::int64_t seen) const {
    if (share == 0) return quota.budget;
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(share * static_cast<double>(seen) + 1e-9)));
  }
};

class KeyDiffRule final : public EvictionRule {
 public:
  KeyDiffRule(const LayerInput& layer, const KeyDiffSetting& setting) : layer_(layer.layer()), s_(setting) {}

  void after_block(std::int64_t, std::int64_t end, std::vector<Held>& held) override {
    evict(held, end, [&](std::size_t h) {
      score_distinctness(layer_.keys(static_cast<int>(h)), held[h], s_.anchor, s_.metric, scores_);
    });
  }

  void after_step(int t, std::vector<Held>& held) override {
    if (s_.share > 0 && (t + 1) % s_.interval != 0) return;
    for (std::size_t h = running_.size(); h < held.size(); ++h) {
      running_.emplace_back(layer_.keys(static_cast<int>(h)), s_.anchor, s_.metric);
    }
    evict(held, layer_.info().prompt_tokens + t + 1, [&](std::size_t h) { running_[h].score(held[h], scores_); });
  }

 private:
  // rate(head) writes the scores of the head's list to scores_.
  template <typename Rate>
  void evict(std::vector<Held>& held, std::int64_t seen, const Rate& rate) {
    const Quota quota{s_.budget(seen), s_.quota.sink, s_.quota.recent};
    for (std::size_t h = 0; h < held.size(); ++h) {
      if (static_cast<std::int64_t>(held[h].size()) <= quota.budget) continue;
      rate(h);
      keep_best(held[h], scores_, quota);
    }
  }

  const trace::Layer& layer_;
  KeyDiffSetting s_;
  std::vector<RunningDistinctness> running_;  // by head, from the first step on
  std::vector<float> scores_;
};

class KeyDiff final : public StepEvictionBy<KeyDiffRule, KeyDiffSetting> {
 public:
  using StepEvictionBy::StepEvictionBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const double n = tokens_to_rank(shape, s_.budget(shape.start));
    if (n == 0) return;
    const double lists = shape.batch * shape.model->n_kv_heads;
    const OpId op = score(*shape.model, lists, n, 2, ops, ops.ready());
    rank_and_compact(*shape.model, lists, n, s_.budget(shape.stop()), ops, op);
  }

  PromptBlocks prompt_blocks(const config::Model&, int, const Lengths& request) const override {
    return {block_, s_.budget(request.prompt_tokens)};
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    if (s_.share == 0) return StepEviction::memory(shape);
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, std::min(shape.tokens, s_.budget(shape.tokens) + s_.interval)))};
  }
  Growth growth(const Lengths& request) const override {
    if (s_.share == 0) return StepEviction::growth(request);
    return {.attended = request.decode_steps < s_.interval ? 1 : s_.share};
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    OpId op = ops.attention(attention_over(shape, 0), {ops.ready()});
    ops.done(op);
    const double lists = shape.heads.size(), held = shape.sum(&HeadCounts::attended) / lists;
    if (s_.share > 0) return evict_share(shape, lists, held, ops, op);
    if (shape.sum(&HeadCounts::evicted) <= 0) return;
    const bool running = s_.anchor == Anchor::kMean || s_.anchor == Anchor::kMeanRaw;
    op = score(*shape.model, lists, held, running ? 1 : 2, ops, op);
    evict_least(shape, lists, ops, op);
  }

 private:
  // An eviction of every `interval`-th step, in equal parts in all of them.
  void evict_share(const DecodeLayer& shape, double lists, double held, LayerOps& ops, OpId op) const {
    const auto evicts = [this](const Sequence& s) { return s.request.decode_steps >= s_.interval ? 1 : 0; };
    lists *= shape.mean_over(evicts) / static_cast<double>(s_.interval);
    if (lists == 0) return;
    op = score(*shape.model, lists, held, 2, ops, op);
    rank_and_compact(*shape.model, lists, held, s_.budget(static_cast<std::int64_t>(shape.mean_tokens())), ops, op);
  }

  // Scores `rows` lists of n keys each, read `passes` times.
  OpId score(const config::Model& model, double rows, double n, double passes, LayerOps& ops, OpId after) const {
    const Dims m(model);
    Kernel work{KernelClass::kScore, rows * passes * n * m.row(), rows * n * kScoreBytes};
    const KeyDiffOperations one = count_keydiff(n, m.d);
    work.flops =
        rows * (s_.anchor == Anchor::kPairwise ? 2 * n * n * m.d
                                               : one.multiplications + one.additions + one.divisions + one.roots);
    return ops.compute(Kind::kScore, "key similarity", work, {after});
  }
};

Fields<KeyDiffSetting> keydiff_fields() {
  using S = KeyDiffSetting;
  return Fields<S>()
      .add(budget_parameter("tokens per KV head kept between steps"), &S::quota, &Quota::budget)
      .add(choice("anchor", {"mean", "mean_raw", "median", "pairwise"},
                  "anchor that keys are compared with: mean of the normalised keys, mean of the unnormalised keys, "
                  "their median, or all pairs"),
           &S::anchor)
      .add(choice("metric", {"cosine", "dot", "euclid"}, "measure of similarity"), &S::metric)
      .add(
          real("recent_fraction", 0.0, "share of the budget for the last tokens, which are never evicted", 0, 0.999999),
          &S::recent_fraction)
      .add(real("share", 0, "share of all tokens seen that a head keeps, in place of a budget; 0: the budget"),
           &S::share)
      .add(whole("interval", 1, "steps", "steps from one eviction to the next, with a share (kvpress: 512)", 1),
           &S::interval)
      .add(block_parameter(), &S::block)
      .add(sink_parameter(), &S::quota, &Quota::sink)
      .add(recent_parameter(), &S::quota, &Quota::recent);
}

std::unique_ptr<Policy> make_keydiff(const ParameterValues& values) {
  KeyDiffSetting s = keydiff_fields().read(values);
  check_quota(values, s.quota);
  for (const char* const key : {"budget", "sink", "recent", "recent_fraction"}) {
    if (s.share > 0 && values.given(key))
      throw UserError(values.where(key), "keydiff: share takes no " + std::string(key));
  }
  if (s.share == 0 && values.given("interval"))
    throw UserError(values.where("interval"), "keydiff: interval needs share");
  if (s.recent_fraction > 0) {
    if (s.quota.recent > 0) {
      throw UserError(values.where("recent"),
                      "recent and recent_fraction both set the number of last tokens: give one");
    }
    // Rounds down, with a tolerance: 0.1 · 30 is 3, although the floating-point product may be smaller.
    s.quota.recent =
        static_cast<std::int64_t>(std::floor(s.recent_fraction * static_cast<double>(s.quota.budget) + 1e-9));
    if (s.quota.sink + s.quota.recent > s.quota.budget) {
      throw UserError(values.where("recent_fraction"), "sink and the recent fraction together exceed the budget");
    }
  }
  return std::make_unique<KeyDiff>(s);
}

}  // namespace

void score_distinctness(const MatrixView& keys, const Held& held, Anchor anchor, Metric metric,
                        std::vector<float>& out) {
  out.assign(held.size(), 0.0f);
  if (held.empty()) return;
  if (anchor == Anchor::kPairwise && metric == Metric::kEuclid) {
    if (held.size() >= 1024) return sum_distances(keys, held, out);
    for (std::size_t i = 0; i < held.size(); ++i) {
      double sum = 0;
      const float* const key = keys.row(index(held[i]));
      for (const std::int32_t j : held) sum += distance(key, keys.row(index(j)), keys.cols);
      out[i] = static_cast<float>(sum);
    }
    return;
  }
  score_to(keys, held, anchor_of(keys, held, anchor, metric), metric, out);
}

void RunningDistinctness::sort_columns(const Held& held) {
  columns_.assign(keys_.cols, std::vector<float>(held.size()));
  for (std::size_t j = 0; j < keys_.cols; ++j) {
    for (std::size_t i = 0; i < held.size(); ++i) columns_[j][i] = keys_.row(index(held[i]))[j];
    std::sort(columns_[j].begin(), columns_[j].end());
  }
}

void RunningDistinctness::update_columns(const Held& added, const Held& removed) {
  for (std::size_t j = 0; j < keys_.cols; ++j) {
    std::vector<float>& column = columns_[j];
    for (const std::int32_t i : removed) {
      column.erase(std::lower_bound(column.begin(), column.end(), keys_.row(index(i))[j]));
    }
    for (const std::int32_t i : added) {
      const float x = keys_.row(index(i))[j];
      column.insert(std::upper_bound(column.begin(), column.end(), x), x);
    }
  }
}

void RunningDistinctness::update_sums(const Held& held, const Held& added, const Held& removed) {
  const auto apart = [&](std::int32_t a, std::int32_t b) {
    return distance(keys_.row(index(a)), keys_.row(index(b)), keys_.cols);
  };
  std::vector<double> sums(held.size(), 0.0);
  std::size_t old = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    while (old < known_.size() && known_[old] < held[i]) ++old;
    if (old < known_.size() && known_[old] == held[i]) {
      sums[i] = sums_[old];
      for (const std::int32_t j : added) sums[i] += apart(held[i], j);
      for (const std::int32_t j : removed) sums[i] -= apart(held[i], j);
    } else {
      for (const std::int32_t j : held) sums[i] += apart(held[i], j);
    }
  }
  sums_ = std::move(sums);
}

void RunningDistinctness::score(const Held& held, std::vector<float>& out) {
  const bool by_pairs = anchor_ == Anchor::kPairwise && metric_ == Metric::kEuclid;
  if (anchor_ != Anchor::kMedian && !by_pairs) return score_distinctness(keys_, held, anchor_, metric_, out);
  Held added, removed;
  std::set_difference(held.begin(), held.end(), known_.begin(), known_.end(), std::back_inserter(added));
  std::set_difference(known_.begin(), known_.end(), held.begin(), held.end(), std::back_inserter(removed));
  if (by_pairs) {
    update_sums(held, added, removed);
    out.assign(sums_.begin(), sums_.end());
  } else {
    if (columns_.empty() || added.size() + removed.size() > 16) {
      sort_columns(held);
    } else {
      update_columns(added, removed);
    }
    std::vector<float> median;
    for (const std::vector<float>& column : columns_) {
      const std::size_t n = column.size();
      median.push_back(n % 2 == 0 ? (column[n / 2 - 1] + column[n / 2]) / 2 : column[n / 2]);
    }
    score_to(keys_, held, median, metric_, out);
  }
  known_ = held;
}

KeyDiffOperations count_keydiff(double n, double d) {
  KeyDiffOperations all;
  // Norms of n keys; the keys divided by their norms; their mean; n products with it; its norm; n products of norms, n
  // comparisons with the least norm (counted as additions) and n divisions.
  all.multiplications = n * d + n * d + n * d + d + n;
  all.additions = n * (d - 1) + (n - 1) * d + n * (d - 1) + (d - 1) + n;
  all.divisions = n + 1 + n;
  all.roots = n + 1;
  return all;
}

Descriptor describe_keydiff() {
  Descriptor d;
  d.name = "keydiff";
  d.sentence = "Keeps the keys that are least similar to the mean key, independent of queries.";
  d.category = Category::kDrop;
  d.paper = "Park et al., KeyDiff, 2025 (arXiv 2504.15364)";
  d.parameters = keydiff_fields().parameters();
  d.budget_convention = "a step attends to budget + 1 tokens, including the current one, then evicts one";
  d.formulas = {"traffic: 2·n_kv·(budget + 1)·d·b per step, and n_kv·(budget + 1)·d·b to rank the keys",
                "ranking n keys: 3nd + n + d multiplications, 3nd − n − 1 additions, 2n + 1 divisions, n + 1 roots",
                "storage: 2·n_kv·(budget + 1)·d·b"};
  d.differences = {"the paper's sections disagree on whether keys are normalised before the mean: anchor: mean_raw",
                   "the anchor of a decode step is charged as a running sum: the keys are read once",
                   "with a share the prompt is compressed too (kvpress joins another press for it), an eviction is "
                   "charged in equal parts to the steps between two, and attention beyond the replay reads the share "
                   "alone, without the tokens added since the last eviction"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& request) {
    const KeyDiffSetting s = keydiff_fields().read(values);
    BudgetRule rule = evicts_always(s.budget(request.bound()));
    if (s.share > 0) rule.extra = s.interval, rule.slack = BudgetRule::kAny;
    return rule;
  };
  d.make = make_keydiff;
  return d;
}

}  // namespace kvcast::policy
