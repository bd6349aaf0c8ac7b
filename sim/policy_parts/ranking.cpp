// Selection by a guessed threshold: an evenly spaced sample gives a value that slightly more than k scores reach, one
// pass collects those, and std::nth_element finds the k best. A wrong guess costs time, never exactness. Ranks come
// from a radix sort of the scores' bits, which has no mispredicted comparisons.
#include "policy_parts/ranking.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.hpp"

namespace kvcast::policy {
namespace {

constexpr std::size_t kSample = 1024;

// A value that at least k of the scores reach, judging by the sample; −∞ if a guess would not save time.
float guessed_threshold(std::span<const float> scores, std::size_t k, std::vector<float>& sample) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  if (scores.size() < 4 * kSample) return kNone;
  const std::size_t stride = scores.size() / kSample;
  sample.clear();
  for (std::size_t i = stride / 2; i < scores.size(); i += stride) sample.push_back(scores[i]);
  const double expected =
      static_cast<double>(k) / static_cast<double>(scores.size()) * static_cast<double>(sample.size());
  // The sample's rank has a standard deviation of about its square root; three of them make failures rare.
  const auto rank = static_cast<std::size_t>(expected + 3 * std::sqrt(expected) + 2);
  if (rank >= sample.size() / 2 || std::any_of(sample.begin(), sample.end(), [](float x) { return std::isnan(x); })) {
    return kNone;
  }
  std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(rank), sample.end(), std::greater<>());
  return sample[rank];
}

// Numbers that ascend as scores descend, with the score in the upper half and the position in the lower one. Zeros of
// either sign are equal; NaN is after all numbers.
std::uint64_t order_of(float score, std::int32_t position) {
  const float number = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score + 0.0f;
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t descending = bits >> 31 != 0 ? bits : ~bits & 0x7FFFFFFFu;
  return std::uint64_t{descending} << 32 | static_cast<std::uint32_t>(position);
}

// Sorts by the upper halves, digit by digit; lower halves ascend in the input, and the passes are stable.
void radix_sort(std::vector<std::uint64_t>& entries, std::vector<std::uint64_t>& spare) {
  constexpr int kBits = 11, kPasses = 3;
  constexpr std::size_t kDigits = std::size_t{1} << kBits;
  const auto digit = [](std::uint64_t entry, int pass) { return (entry >> (32 + pass * kBits)) & (kDigits - 1); };
  std::array<std::array<std::uint32_t, kDigits>, kPasses> starts{};
  for (const std::uint64_t entry : entries) {
    for (int pass = 0; pass < kPasses; ++pass) ++starts[pass][digit(entry, pass)];
  }
  spare.resize(entries.size());
  for (int pass = 0; pass < kPasses; ++pass) {
    auto& next = starts[pass];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), 0u);
    for (const std::uint64_t entry : entries) spare[next[digit(entry, pass)]++] = entry;
    entries.swap(spare);
  }
}

}  // namespace

void Ranking::gather_candidates(std::span<const float> scores, std::size_t k) {
  candidates_.resize(std::max(candidates_.size(), scores.size()));
  float threshold = guessed_threshold(scores, k, values_);
  while (true) {
    std::size_t n = 0;
    const auto gather = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        candidates_[n] = static_cast<std::int32_t>(i);
        n += scores[i] >= threshold ? 1 : 0;  // false for NaN
      }
    };
    // Most blocks contain none, which a few vector instructions detect.
    constexpr std::size_t kBlock = 32;
    std::size_t i = 0;
    for (; i + kBlock <= scores.size(); i += kBlock) {
      int any = 0;
      for (std::size_t j = i; j < i + kBlock; ++j) any |= scores[j] >= threshold ? 1 : 0;
      if (any != 0) gather(i, i + kBlock);
    }
    gather(i, scores.size());
    candidate_count_ = n;
    if (n >= k || threshold == -std::numeric_limits<float>::infinity()) return;
    threshold = -std::numeric_limits<float>::infinity();
  }
}

Cut Ranking::cut(std::span<const float> scores, std::size_t k) {
  KVCAST_CHECK(k >= 1 && k <= scores.size());
  gather_candidates(scores, k);
  const std::span candidates(candidates_.data(), candidate_count_);
  if (candidates.size() <= k)
    return {-std::numeric_limits<float>::infinity(), std::numeric_limits<std::int32_t>::max()};
  values_.clear();
  for (const std::int32_t i : candidates) values_.push_back(scores[static_cast<std::size_t>(i)]);
  std::nth_element(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(k - 1), values_.end(),
                   std::greater<>());
  Cut cut{values_[k - 1], -1};
  const auto above = std::count_if(values_.begin(), values_.end(), [&](float v) { return v > cut.value; });
  auto ties = static_cast<std::ptrdiff_t>(k) - above;
  for (const std::int32_t i : candidates) {
    if (scores[static_cast<std::size_t>(i)] == cut.value && --ties == 0) {
      cut.last = i;
      break;
    }
  }
  return cut;
}

void Ranking::select(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out) {
  out.clear();
  if (k == 0) return;
  if (k >= scores.size()) {
    out.resize(scores.size());
    std::iota(out.begin(), out.end(), 0);
    return;
  }
  const Cut border = cut(scores, k);
  for (std::size_t n = 0; n < candidate_count_; ++n) {
    const std::int32_t i = candidates_[n];
    if (border.holds(scores[i], i)) out.push_back(i);
  }
}

void Ranking::rank(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out) {
  select(scores, k, out);
  order_.clear();
  for (const std::int32_t i : out) order_.push_back(order_of(scores[i], i));
  constexpr std::size_t kFew = 256;  // below this number the radix sort's tables cost more than comparisons
  if (order_.size() < kFew) {
    std::sort(order_.begin(), order_.end());
  } else {
    radix_sort(order_, spare_);
  }
  for (std::size_t n = 0; n < out.size(); ++n) out[n] = static_cast<std::int32_t>(order_[n] & 0xFFFFFFFFu);
}

void rank_first(std::span<float> scores, std::size_t head, std::size_t tail) {
  const std::size_t n = scores.size();
  std::fill_n(scores.begin(), std::min(n, head), std::numeric_limits<float>::infinity());
  std::fill_n(scores.rbegin(), std::min(n, tail), std::numeric_limits<float>::infinity());
}

void rank_pages_first(std::span<float> scores, std::int64_t page, std::int64_t tokens, std::int64_t sink,
                      std::int64_t recent) {
  const std::int64_t window =
      recent > 0 ? (tokens - 1) / page - std::max<std::int64_t>(0, tokens - recent) / page + 1 : 0;
  rank_first(scores, (sink + page - 1) / page, window);
}

}  // namespace kvcast::policy
