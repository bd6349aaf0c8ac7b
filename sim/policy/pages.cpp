#include "policy/pages.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/float8.hpp"
#include "base/system_memory.hpp"
#include "policy/selection.hpp"

namespace kvcast::policy {

std::vector<std::string> summary_formats() { return {"cache", "fp8_e4m3", "fp8_e5m2"}; }

void round_summary(SummaryFormat format, std::span<float> bounds) {
  if (format == SummaryFormat::kCache) return;
  for (float& x : bounds) x = format == SummaryFormat::kE4m3 ? nearest_e4m3(x) : nearest_e5m2(x);
}

PageBounds::PageBounds(int head_dim, int page, std::int64_t capacity, Summary summary, SummaryFormat format)
    : page_(page), summary_(summary), format_(format), d_(head_dim) {
  KVCAST_CHECK(page >= 1 && capacity >= 0);
  bounds_.reserve(capacity * 2 * d_);
  advise_large_pages(bounds_.data(), bounds_.capacity() * sizeof(float));
}

void widen_bounds(const float* key, std::size_t d, float* upper, float* lower) {
  for (std::size_t j = 0; j < d; ++j) upper[j] = std::max(upper[j], key[j]);
  for (std::size_t j = 0; j < d; ++j) lower[j] = std::min(lower[j], key[j]);
}

void PageBounds::append(const float* key) {
  if (tokens_ % page_ == 0) {
    bounds_.insert(bounds_.end(), key, key + d_);
    bounds_.insert(bounds_.end(), key, key + d_);
    open_.clear();
  } else {
    float* upper = bounds_.data() + bounds_.size() - 2 * d_;
    widen_bounds(key, d_, upper, upper + d_);
  }
  if (summary_ == Summary::kCuboidMean) open_.insert(open_.end(), key, key + d_);
  if (++tokens_ % page_ == 0 && summary_ == Summary::kCuboidMean) close_page(open_.data());
  round_last();
}

// Rounds the last page's bounds. Rounding keeps order, so that rounded bounds that are widened and rounded again are
// those of the page's keys, rounded once.
void PageBounds::round_last() { round_summary(format_, {bounds_.data() + bounds_.size() - 2 * d_, 2 * d_}); }

void PageBounds::append_pages(const float* keys, std::int64_t n) {
  KVCAST_CHECK(tokens_ % page_ == 0);
  for (std::int64_t i = 0; i < n; ++i) {
    bounds_.insert(bounds_.end(), keys, keys + d_);
    bounds_.insert(bounds_.end(), keys, keys + d_);
    float* const upper = bounds_.data() + bounds_.size() - 2 * d_;
    for (std::size_t token = 1; token < static_cast<std::size_t>(page_); ++token) {
      widen_bounds(keys + token * d_, d_, upper, upper + d_);
    }
    if (summary_ == Summary::kCuboidMean) close_page(keys);
    round_last();
    keys += page_ * d_;
    tokens_ += page_;
  }
}

void PageBounds::close_page(const float* keys) {
  float* const upper = bounds_.data() + bounds_.size() - 2 * d_;
  float* const lower = upper + d_;
  centre_.resize(d_);
  distance_.assign(d_, 0.0f);
  for (std::size_t j = 0; j < d_; ++j) centre_[j] = (upper[j] + lower[j]) / 2;
  // Iterates over keys first, so that the inner loop has contiguous elements and vectorises.
  for (std::size_t token = 0; token < static_cast<std::size_t>(page_); ++token) {
    const float* const key = keys + token * d_;
    for (std::size_t j = 0; j < d_; ++j) distance_[j] += std::abs(centre_[j] - key[j]);
  }
  for (std::size_t j = 0; j < d_; ++j) {
    const float distance = distance_[j] / static_cast<float>(page_);
    upper[j] = centre_[j] + distance;
    lower[j] = centre_[j] - distance;
  }
}

std::int64_t PageBounds::tokens_in(std::size_t index) const {
  return std::min<std::int64_t>(page_, tokens_ - static_cast<std::int64_t>(index) * page_);
}

MatrixView PageBounds::rows() const { return {bounds_.data(), pages(), 2 * d_, 2 * d_}; }

void split_signs(const float* query, std::size_t d, float* out) {
  for (std::size_t j = 0; j < d; ++j) out[j] = std::max(query[j], 0.0f);
  for (std::size_t j = 0; j < d; ++j) out[d + j] = std::min(query[j], 0.0f);
}

void append_page_tokens(std::span<const std::int32_t> pages, std::int64_t page, std::int64_t first, std::int64_t end,
                        std::vector<std::int32_t>& out) {
  for (const std::int32_t p : pages) {
    const std::int64_t begin = first + p * page;
    append_range(begin, std::min(begin + page, end), out);
  }
}

}  // namespace kvcast::policy
