// Pages of consecutive tokens, summarised by the minimum and maximum of each key dimension.
//
// q·k of any key in a page is at most Σ_j max(q_j·min_j, q_j·max_j) (Tang et al., "Quest", ICML 2024, section 3.2).
// ArkVale shrinks the box to centre ± the mean distance of the keys from it (Chen et al., "ArkVale", NeurIPS 2024).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/matrix.hpp"

namespace kvcast::policy {

enum class Summary : std::uint8_t { kMinMax, kCuboidMean };

// The format in which bounds are stored: that of the cached keys, or an 8-bit one without a scale.
enum class SummaryFormat : std::uint8_t { kCache, kE4m3, kE5m2 };
std::vector<std::string> summary_formats();  // names, in the order of the enumerators
void round_summary(SummaryFormat format, std::span<float> bounds);

// Bounds of the pages of one KV head, updated token by token. A page that is not full has the bounds of its tokens;
// with kCuboidMean these are minimum and maximum until it is full.
class PageBounds {
 public:
  // Allocates `capacity` pages; grows if more are appended.
  PageBounds(int head_dim, int page, std::int64_t capacity, Summary summary,
             SummaryFormat format = SummaryFormat::kCache);

  void append(const float* key);
  // Appends n whole pages of contiguous keys after whole pages: like append(), with less copying.
  void append_pages(const float* keys, std::int64_t n);

  int page() const { return page_; }
  std::int64_t tokens() const { return tokens_; }
  std::size_t pages() const { return static_cast<std::size_t>((tokens_ + page_ - 1) / page_); }
  std::size_t full_pages() const { return static_cast<std::size_t>(tokens_ / page_); }
  // Tokens of a page: `page`, fewer in the last one.
  std::int64_t tokens_in(std::size_t index) const;
  // [pages × 2·head_dim], one row per page: upper bounds, then lower bounds.
  MatrixView rows() const;

 private:
  // Computes the kCuboidMean bounds of the last page from its contiguous keys.
  void close_page(const float* keys);
  void round_last();
  int page_;
  Summary summary_;
  SummaryFormat format_;
  std::size_t d_;
  std::int64_t tokens_ = 0;
  std::vector<float> bounds_;
  // For kCuboidMean: keys of the page that is not full, and buffers to close it.
  std::vector<float> open_, centre_, distance_;
};

// Widens bounds of d channels to include a key.
void widen_bounds(const float* key, std::size_t d, float* upper, float* lower);

// Writes [max(q, 0) | min(q, 0)]: its product with a row of bounds is Σ_j max(q_j·lower_j, q_j·upper_j).
void split_signs(const float* query, std::size_t d, float* out);

// Appends to `out` the positions of the tokens of pages (ascending). Pages start at `first` and end at `end`.
void append_page_tokens(std::span<const std::int32_t> pages, std::int64_t page, std::int64_t first, std::int64_t end,
                        std::vector<std::int32_t>& out);

}  // namespace kvcast::policy
