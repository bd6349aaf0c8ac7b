// Scores of the pages of one KV head for the decode queries of its group; shared by policies that rank pages.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/group.hpp"
#include "policy/layer_input.hpp"
#include "policy/pages.hpp"
#include "policy_parts/token_list.hpp"

namespace kvcast::policy {

// Pages divide a list of tokens in position order: the prompt from `first` on, or the part of it that a first stage
// kept, then the generated tokens. Page i contains tokens i·page … (i + 1)·page − 1 of that list. The layer, and the
// objects that the list refers to, must outlive the scorer.
class PageScorer {
 public:
  struct Shape {
    int page = 0;
    std::int64_t first = 0;  // 0 unless the list is the whole prompt
    Summary summary = Summary::kMinMax;
    SummaryFormat format = SummaryFormat::kCache;
    Group group = Group::kSumScores;
    // For ranking only: a page whose weight underflows is scored by its logarithm, which is negative. A softmax of
    // unscaled products leaves most pages without a weight in single precision, so that they would tie.
    bool ranks_underflow = false;
  };
  PageScorer(const LayerInput& layer, int kv_head, const TokenList& tokens, const Shape& shape);

  // Caches the key of decode step t. Call for t = 0, 1, ... in order.
  void append(int t);
  std::int64_t tokens() const { return static_cast<std::int64_t>(full_before_) * shape_.page + tail_.tokens(); }
  std::size_t pages() const { return full_before_ + tail_.pages(); }
  std::size_t full_pages() const { return full_before_ + tail_.full_pages(); }

  // Scores of the first `n` pages at step t, reduced over the group; weights are softmax(scale · score) over these
  // pages. Not for Group::kPerHead.
  void score(int t, std::size_t n, float scale, std::vector<float>& out);
  // Unscaled scores for one query head of the group, 0 ≤ member < group size.
  void score_head(int t, int member, std::size_t n, std::vector<float>& out);
  // Like score(), for queries other than a decode step's (one per query head of the group).
  void score_queries(std::span<const float* const> heads, std::size_t n, float scale, std::vector<float>& out);

 private:
  void make_block(int t);
  void reduce_rows(std::size_t n, float scale, std::vector<float>& out);
  void fill_row(int t, std::size_t row, std::size_t n, std::span<float> out) const;
  std::size_t rows() const { return combines_queries(shape_.group) ? 1 : static_cast<std::size_t>(members_); }

  const trace::Layer& layer_;
  int kv_head_, members_;
  Shape shape_;
  std::shared_ptr<const PageBounds> before_;  // the full pages of the prompt
  std::size_t full_before_;
  PageBounds tail_;  // all later pages
  // Split queries of steps block_ .. block_ + block_steps_ − 1 and their scores for the full pages of the prompt, by
  // step and row.
  int block_ = 0, block_steps_ = 0;
  std::vector<float> queries_, scores_;
  std::vector<std::vector<float>> work_, products_;
};

}  // namespace kvcast::policy
