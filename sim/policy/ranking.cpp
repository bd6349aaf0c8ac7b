// Selection by a guessed threshold: an evenly spaced sample gives a value that a little more than k scores reach, one
// pass collects those, and std::nth_element settles the rest. The guess only costs time when it is wrong, never
// exactness.
#include "policy/ranking.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.hpp"

namespace kvcast::policy {
namespace {

constexpr std::size_t kSample = 1024;

// A value that, judged by the sample, at least k of the scores reach; −∞ where a guess would not pay.
float guessed_threshold(std::span<const float> scores, std::size_t k, std::vector<float>& sample) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  if (scores.size() < 4 * kSample) return kNone;
  const std::size_t stride = scores.size() / kSample;
  sample.clear();
  for (std::size_t i = stride / 2; i < scores.size(); i += stride) sample.push_back(scores[i]);
  const double expected =
      static_cast<double>(k) / static_cast<double>(scores.size()) * static_cast<double>(sample.size());
  // The sample's rank scatters like the root of itself; three such steps keep failures rare.
  const auto rank = static_cast<std::size_t>(expected + 3 * std::sqrt(expected) + 2);
  if (rank >= sample.size() / 2 || std::any_of(sample.begin(), sample.end(), [](float x) { return std::isnan(x); })) {
    return kNone;
  }
  std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(rank), sample.end(), std::greater<>());
  return sample[rank];
}

}  // namespace

void Ranking::gather_candidates(std::span<const float> scores, std::size_t k) {
  candidates_.resize(std::max(candidates_.size(), scores.size()));
  float threshold = guessed_threshold(scores, k, values_);
  while (true) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      candidates_[n] = static_cast<std::int32_t>(i);
      n += scores[i] >= threshold ? 1 : 0;  // false for NaN
    }
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
    if (border.holds(scores[static_cast<std::size_t>(i)], i)) out.push_back(i);
  }
}

void Ranking::rank(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out) {
  select(scores, k, out);
  const auto key = [&](std::int32_t i) {
    const float score = scores[static_cast<std::size_t>(i)];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  std::stable_sort(out.begin(), out.end(), [&](std::int32_t a, std::int32_t b) { return key(a) > key(b); });
}

}  // namespace kvcast::policy
