// Pages of consecutive tokens, summarised by the smallest and largest value of each key dimension.
//
// q·k of any key in a page lies at or below Σ_j max(q_j·min_j, q_j·max_j) (Tang et al., "Quest", ICML 2024,
// section 3.2). ArkVale shrinks the box to centre ± the mean distance of the keys from it (Chen et al., "ArkVale",
// NeurIPS 2024).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix.hpp"

namespace kvcast::policy {

enum class Summary : std::uint8_t { kMinMax, kCuboidMean };

// Bounds of the pages of one KV head, token by token. A page that is not full has the bounds of what it holds; its
// kCuboidMean bounds are those of min and max until it is full.
class PageBounds {
 public:
  // Room for `capacity` pages; grows where more come.
  PageBounds(int head_dim, int page, std::int64_t capacity, Summary summary);

  void append(const float* key);
  // n whole pages of keys that lie one behind the other, after whole pages: as append, with less copying.
  void append_pages(const float* keys, std::int64_t n);

  int page() const { return page_; }
  std::int64_t tokens() const { return tokens_; }
  std::size_t pages() const { return static_cast<std::size_t>((tokens_ + page_ - 1) / page_); }
  std::size_t full_pages() const { return static_cast<std::size_t>(tokens_ / page_); }
  // Tokens of a page: `page` but for the last one.
  std::int64_t tokens_in(std::size_t index) const;
  // [pages × 2·head_dim], a row a page: upper bounds, then lower bounds.
  MatrixView rows() const;

 private:
  // Bounds of the last page as kCuboidMean has them, once its keys, one behind the other, are known.
  void close_page(const float* keys);
  int page_;
  Summary summary_;
  std::size_t d_;
  std::int64_t tokens_ = 0;
  std::vector<float> bounds_;
  // For kCuboidMean: keys of the page that is not full, and what closing it works with.
  std::vector<float> open_, centre_, distance_;
};

// Makes room for a key between bounds of d channels.
void widen_bounds(const float* key, std::size_t d, float* upper, float* lower);

// [max(q, 0) | min(q, 0)]: its product with a row of bounds is Σ_j max(q_j·lower_j, q_j·upper_j).
void split_signs(const float* query, std::size_t d, float* out);

// Positions of the tokens of pages (ascending) that start at `first`, cut off at `end`; appended to `out`.
void append_page_tokens(std::span<const std::int32_t> pages, int page, std::int64_t first, std::int64_t end,
                        std::vector<std::int32_t>& out);

}  // namespace kvcast::policy
