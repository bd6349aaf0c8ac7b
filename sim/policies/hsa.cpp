// HSA, hybrid sparse attention: the second stage of RocketKV alone (Behnam et al., "RocketKV", 2025, arXiv 2502.14051,
// algorithm 1).
//
// Idea: estimate scores from a few head dimensions (as SparQ) of page bounds (as Quest), so that each is compressed
// only moderately.
// Selection in each step, for every KV head: (1) i1 = the k1 dimensions with the largest Σ_heads |q|. (2) Each takes a
// page's maximum if Σ_heads q is positive, and its minimum if it is negative. (3) Every query head scores the pages
// over i1, divided by √(d·‖q[i1]‖₁ / ‖q‖₁) (SparQ's correction, in the released code only); softmax over tokens, each
// with its page's score. (4) Mean over the group. (5) The k2 = ⌊t / 2⌋ tokens with the largest value: whole pages, the
// last one cut.
// Split: ratio c2 = S_max / t; page p = ⌈√c2⌉, at most ⌊c2⌋; k1 = d·p / c2, so that estimation reads ⌈N/p⌉·k1 ≈ t·d
// elements, half of the 2·t·d of the budget.
// Cost: summed |q| and its top-k1; estimation n_kv·⌈N/p⌉·k1·b, one bound per element (the index is stored dimension by
// dimension); softmax and reduction; top-k; attention 2·n_kv·k2·d·b; the new token updates one page's bounds. All in
// sequence.
// Storage: KV pairs + 2·n_kv·⌈N/p⌉·d·b.
#include "policies/hsa.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/pages.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

class HsaHead final : public HeadRetrievalBy<HsaSetting> {
 public:
  HsaHead(const LayerInput& input, int kv_head, const TokenList& tokens, const HsaSetting& setting)
      : HeadRetrievalBy(input, kv_head, tokens, setting),
        dims_(index(setting.dims(input.info().head_dim))),
        tail_(input.info().head_dim, setting.page(), input.info().decode_steps / setting.page() + 2, Summary::kMinMax,
              setting.format) {
    if (s_.budget < s_.length) index_prompt();
  }

  void step(int t, std::span<HeadSelection> out) override {
    const trace::TraceInfo& info = layer_.info();
    const std::int64_t n = tokens_.size(t);
    if (s_.budget >= s_.length) return tokens_.append_all(t, out[0].attended);
    tail_.append(layer_.keys(kv_head_).row(index(info.prompt_tokens + t)));
    if (s_.budget >= info.prompt_tokens + t + 1) return tokens_.append_all(t, out[0].attended);
    choose_dims(t);
    estimate(t);
    out[0].counts.scored = static_cast<std::int64_t>(reduced_.size());
    take_tokens(n, out[0]);
  }

 private:
  // Stores bounds of the prompt's full pages in blocks of pages, each dimension by dimension, so that a scan over pages
  // reads contiguous memory. Only bounds that some step reads are stored; the rest of the prompt begins the tail.
  void index_prompt() {
    number_bounds();
    const MatrixView keys = layer_.keys(kv_head_);
    const std::int64_t page = s_.page(), kept = tokens_.prompt_tokens_kept();
    full_ = index(kept / page);
    index_ = uninitialised_floats((full_ + kBlock - 1) / kBlock * block_size());
    const std::size_t row = 2 * d_ + kBlock;  // not a power of two, which would map to few cache sets
    std::vector<float> bounds(kBlock * row);
    for (std::size_t begin = 0; begin < full_; begin += kBlock) {
      const std::size_t n = std::min(kBlock, full_ - begin);
      for (std::size_t p = 0; p < n; ++p) bound_page(keys, begin + p, bounds.data() + p * row);
      float* out = index_.get() + begin / kBlock * block_size();
      for (const std::size_t bound : kept_bounds_) {
        for (std::size_t p = 0; p < kBlock; ++p) *out++ = bounds[p * row + bound];
      }
    }
    for (auto i = static_cast<std::int64_t>(full_) * page; i < kept; ++i) {
      tail_.append(keys.row(index(tokens_.position(i))));
    }
  }

  // Finds the bounds that decode steps read, and their number in a block.
  void number_bounds() {
    place_.assign(2 * d_, 2 * d_);
    for (int t = 0; t < layer_.info().decode_steps; ++t) {
      choose_dims(t);
      for (const std::size_t bound : bound_) {
        if (place_[bound] < 2 * d_) continue;
        place_[bound] = kept_bounds_.size();
        kept_bounds_.push_back(bound);
      }
    }
  }

  std::size_t block_size() const { return kept_bounds_.size() * kBlock; }

  // Writes upper, then lower bounds of one of the prompt's full pages.
  void bound_page(const MatrixView& keys, std::size_t number, float* out) const {
    const auto first = static_cast<std::int64_t>(number) * s_.page();
    const auto key = [&](std::int64_t i) { return keys.row(index(tokens_.position(i))); };
    float *const upper = out, *const lower = out + d_;
    std::copy_n(key(first), d_, upper);
    std::copy_n(key(first), d_, lower);
    for (std::int64_t i = first + 1; i < first + s_.page(); ++i) widen_bounds(key(i), d_, upper, lower);
    round_summary(s_.format, {out, 2 * d_});
  }

  std::size_t pages() const { return full_ + tail_.pages(); }
  std::int64_t tokens_in(std::size_t number) const {
    return number < full_ ? s_.page() : tail_.tokens_in(number - full_);
  }

  const float* query(int t, std::size_t member) const {
    return layer_.decode_query(kv_head_ * static_cast<int>(members_) + static_cast<int>(member), t);
  }

  // Finds i1, and the index of each of its bounds in a row.
  void choose_dims(int t) {
    magnitude_.assign(d_, 0);
    signed_.assign(d_, 0);
    for (std::size_t g = 0; g < members_; ++g) {
      const float* const q = query(t, g);
      for (std::size_t j = 0; j < d_; ++j) magnitude_[j] += std::abs(q[j]), signed_[j] += q[j];
    }
    ranking_.select(magnitude_, dims_, chosen_dims_);
    bound_.clear();
    for (const std::int32_t j : chosen_dims_) {
      const float sign = signed_[index(j)];
      const bool upper = sign > 0 || (sign == 0 && s_.zero_is_max);
      bound_.push_back(index(j) + (upper ? 0 : d_));
    }
  }

  void estimate(int t) {
    const std::size_t n = pages();
    scores_.resize(members_ * n);
    reduced_.resize(n);
    score_pages(t);
    std::vector<std::span<float>> rows;
    for (std::size_t g = 0; g < members_; ++g) {
      const std::span row(scores_.data() + g * n, n);
      const float scale = temperature(query(t, g));
      for (float& x : row) x *= scale;
      if (s_.group == Group::kMeanWeights || s_.group == Group::kSumWeights || s_.group == Group::kMaxWeights) {
        softmax_over_tokens(row);
      }
      rows.push_back(row);
    }
    reduce_group(without_softmax(s_.group), rows, 1, reduced_);
  }

  // Scores of all query heads. A block of the index stays in the cache while every head reads it.
  void score_pages(int t) {
    const std::size_t n = pages();
    for (std::size_t begin = 0; begin < full_; begin += kBlock) {
      const float* const block = index_.get() + begin / kBlock * block_size();
      const std::size_t scored = std::min(kBlock, full_ - begin);
      float* const out = scores_.data() + begin;
      std::size_t g = 0;
      for (; g + 2 <= members_; g += 2) score_block<2>(t, g, block, scored, out + g * n, n);
      if (g < members_) score_block<1>(t, g, block, scored, out + g * n, n);
    }
    const MatrixView tail = tail_.rows();
    for (std::size_t g = 0; g < members_; ++g) {
      const float* const q = query(t, g);
      for (std::size_t page = full_; page < n; ++page) {
        float sum = 0;
        for (std::size_t k = 0; k < chosen_dims_.size(); ++k) {
          sum += q[chosen_dims_[k]] * tail.row(page - full_)[bound_[k]];
        }
        scores_[g * n + page] = sum;
      }
    }
  }

  // Scores of `scored` pages of a block for `heads` query heads, whose rows of `out` are n apart.
  template <std::size_t heads>
  void score_block(int t, std::size_t first, const float* block, std::size_t scored, float* out, std::size_t n) const {
    const float* q[heads];
    for (std::size_t g = 0; g < heads; ++g) q[g] = query(t, first + g);
    SimdFloats sums[heads][kBlock / kSimdWidth] = {};
    for (std::size_t k = 0; k < chosen_dims_.size(); ++k) {
      const auto* const bounds = reinterpret_cast<const SimdFloats*>(block + place_[bound_[k]] * kBlock);
#pragma GCC unroll 2
      for (std::size_t g = 0; g < heads; ++g) {
        const float factor = q[g][chosen_dims_[k]];
#pragma GCC unroll 4
        for (std::size_t i = 0; i < kBlock / kSimdWidth; ++i) sums[g][i] += factor * bounds[i];
      }
    }
    for (std::size_t g = 0; g < heads; ++g) std::memcpy(out + g * n, sums[g], scored * sizeof(float));
  }

  // 1 / √(d·‖q[i1]‖₁ / ‖q‖₁), or 1 / √d.
  float temperature(const float* q) const {
    float all = 0, chosen = 0;
    for (std::size_t j = 0; j < d_; ++j) all += std::abs(q[j]);
    for (const std::int32_t j : chosen_dims_) chosen += std::abs(q[j]);
    const float share = s_.norm_correction && all > 0 && chosen > 0 ? chosen / all : 1.0f;
    return 1.0f / std::sqrt(static_cast<float>(d_) * share);
  }

  // Every token has its page's score: a page of m tokens counts m times in the sum.
  void softmax_over_tokens(std::span<float> row) const {
    softmax(row);
    const double page = s_.page();
    const double last = tokens_in(row.size() - 1);
    const double sum = page - (page - last) * static_cast<double>(row.back());
    for (float& x : row) x = static_cast<float>(x / sum);
  }

  static Group without_softmax(Group group) {
    if (group == Group::kMeanWeights) return Group::kMeanScores;
    if (group == Group::kSumWeights) return Group::kSumScores;
    return group == Group::kMaxWeights ? Group::kMaxScores : group;
  }

  void take_tokens(std::int64_t n, HeadSelection& out) {
    const std::int64_t page = s_.page();
    std::int64_t left = std::min(s_.tokens(), n);
    // One page more than necessary, because the last one may be partial and rank among the best.
    const std::int64_t enough = std::min<std::int64_t>((left + page - 1) / page + 1, pages());
    ranking_.rank(reduced_, index(enough), chosen_pages_);
    takes_.clear();
    for (const std::int32_t number : chosen_pages_) {
      const std::int64_t take = std::min(left, tokens_in(index(number)));
      takes_.emplace_back(number, take);
      left -= take;
    }
    std::sort(takes_.begin(), takes_.end());
    for (const auto& [number, take] : takes_) {
      for (std::int64_t i = 0; i < take; ++i) out.attended.push_back(tokens_.position(number * page + i));
    }
  }

  std::size_t dims_;
  PageBounds tail_;                                      // pages after the prompt's full ones
  std::size_t full_ = 0;                                 // full pages of the prompt
  static constexpr std::size_t kBlock = 4 * kSimdWidth;  // pages
  std::vector<std::size_t> kept_bounds_;  // the bounds in the index, of the 2·d of a page, upper ones first
  std::vector<std::size_t> place_;        // index of each bound among them; 2·d for others
  Floats index_;                          // [block × bound kept × page of the block]
  Ranking ranking_;
  std::vector<float> magnitude_, signed_, scores_, reduced_;
  std::vector<std::int32_t> chosen_dims_, chosen_pages_;
  std::vector<std::size_t> bound_;
  std::vector<std::pair<std::int32_t, std::int64_t>> takes_;  // page, and number of its tokens that are taken
};

class Hsa final : public RetrievalByRequest<HsaHead, HsaSetting> {
 public:
  using RetrievalByRequest::RetrievalByRequest;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    summarise_pages(shape, kept, at(shape.request()).page(), ops, ops.ready(), s_.format);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    OpId op = update_page_summary(shape, ops, s_.format);
    double read = 0, dims = 0, best = 0;  // dimensions of all pages scored; means over sequences
    for (std::size_t i = 0; i < shape.sequences.size(); ++i) {
      const HsaSetting s = at(shape.sequences[i].request);
      const double each = s.dims(shape.model->head_dim);
      read += shape.sum_of(i, &HeadCounts::scored) * each;
      dims += each / shape.batch;
      best += std::ceil(static_cast<double>(s.tokens()) / s.page()) / shape.batch;
    }
    if (read > 0) {
      const double heads = shape.batch * m.kv_heads;
      const Kernel sum{KernelClass::kReduce, shape.batch * m.q_heads * m.row(), heads * 2 * m.d * kScoreBytes,
                       2 * shape.batch * m.q_heads * m.d};
      op = ops.compute(Kind::kScore, "sum of |q|", sum, {op});
      op = ops.compute(Kind::kTopK, "top-k1 dimensions", TopK{heads, m.d, dims, kScoreBytes}, {op});
      op = score_and_rank(shape, read * summary_element(*shape.model, s_.format), 2 * read * m.group, best, ops, op,
                          Lane::kCompute, by_weights(s_.group) ? Reduction::kSoftmax : Reduction::kPlain,
                          Index::kByDimension);
    }
    ops.done(ops.attention(attention_over(shape, gathered_unit(shape)), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    const std::int64_t generated = shape.tokens - shape.lengths.prompt_tokens;
    const HsaSetting s = at(shape.lengths);
    const std::int64_t room = tokens + std::max<std::int64_t>(0, s.reserved - generated);
    return {in_hbm(Owner::kPageSummaries, summary_bytes(shape, room, s.page(), s.format))};
  }

  Growth growth(const Lengths& request) const override {
    const HsaSetting s = at(request);
    if (s.budget >= s.length) return {.attended = 1};
    return {.scored = 1.0 / s.page(), .fill = s.budget, .when_full = s.tokens()};
  }
};

}  // namespace

int HsaSetting::page() const { return static_cast<int>(std::min(std::floor(ratio), std::ceil(std::sqrt(ratio)))); }

int HsaSetting::dims(int head_dim) const {
  const double exact = head_dim * page() / ratio;
  return static_cast<int>(std::clamp(nearest_dims ? std::nearbyint(exact) : std::floor(exact), 1.0, double(head_dim)));
}

std::unique_ptr<Retrieval> retrieve_hsa(const HsaSetting& setting,
                                        std::function<HsaSetting(const HsaSetting&, const Lengths&)> at) {
  KVCAST_CHECK(setting.group != Group::kPerHead && !combines_queries(setting.group));
  return std::make_unique<Hsa>(setting, std::move(at));
}

Fields<HsaSetting> hsa_fields() {
  using S = HsaSetting;
  return Fields<S>()
      .add(whole_or("max_new_tokens", "decode_steps", "tokens",
                    "T_max: planned number of generated tokens, for which page summaries are allocated (RocketKV: "
                    "also subtracted from the prompt's budget); 0: the paper's formula without it",
                    0, 1e9),
           &S::planned)
      .add(group_parameter({"mean_weights", "sum_weights", "max_weights", "sum_scores", "mean_scores", "max_scores"}),
           &S::group)
      .add(choice("dims_rounding", {"down", "nearest"},
                  "rounding of the number of head dimensions read by the estimate"),
           &S::nearest_dims)
      .add(flag("norm_correction", true, "scale each head's estimate by the share of ‖q‖₁ in the selected dimensions"),
           &S::norm_correction)
      .add(choice("zero_sign", {"min", "max"}, "bound for a dimension in which the sum of queries is 0"),
           &S::zero_is_max)
      .add(summary_format_parameter(), &S::format);
}

namespace {

Fields<HsaSetting> own_hsa_fields() {
  return Fields<HsaSetting>()
      .add(budget_parameter("the step's traffic in tokens, half for estimation, half for attention"),
           &HsaSetting::budget)
      .add(hsa_fields());
}

HsaSetting hsa_at(const HsaSetting& setting, const Lengths& request) {
  HsaSetting s = setting;
  s.reserved = s.reserved_for(request);
  s.length = request.bound();
  s.ratio = std::max(1.0, static_cast<double>(s.length) / static_cast<double>(s.budget));
  return s;
}

Stages make_hsa(const ParameterValues& values) {
  return {keep_all(), retrieve_hsa(own_hsa_fields().read(values), hsa_at)};
}

}  // namespace

namespace hsa {

Descriptor describe() {
  Descriptor d;
  d.name = "hsa";
  d.sentence =
      "Keeps everything on the GPU and finds tokens by a few dimensions of page bounds (RocketKV's second stage).";
  d.category = Category::kGpuRetrieval;
  d.no_ends = "the traffic budget sets the size of its pages, which leaves no whole ones to set aside";
  d.paper = "Behnam et al., RocketKV, 2025 (arXiv 2502.14051), algorithm 1";
  d.parameters = own_hsa_fields().parameters();
  d.own_budget_counts = BudgetRule::Counts::kTraffic;
  d.budget_convention =
      "all KV-equivalent bytes of a step in units of one token's keys and values; ⌊budget / 2⌋ "
      "tokens are attended to";
  d.formulas = {"traffic: n_kv·⌈L/p⌉·k1·b + 2·n_kv·⌊t/2⌋·d·b per step, about 2·n_kv·t·d·b",
                "storage: 2·n_kv·(L + ⌈L/p⌉)·d·b"};
  d.differences = {
      "k1 is rounded down (the Hugging Face code; its gpt-fast code rounds to nearest: dims_rounding: nearest)",
      "the paper's algorithm has no norm correction (norm_correction: false) and takes the maximum at a sign "
      "of 0 (zero_sign: max)",
      "the paper's algorithm sums queries, and thereby scores, over the group (group: sum_scores); the released code "
      "averages softmax weights",
      "top-k runs over pages; the released code spreads scores over tokens first"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    BudgetRule rule = chooses(values.integer("budget"), values.integer("budget") / 2, 0, lengths.prompt_tokens);
    rule.counts = BudgetRule::Counts::kTraffic;
    return rule;
  };
  d.stages = make_hsa;
  return d;
}

}  // namespace hsa

}  // namespace kvcast::policy
