// Exact selection of the k best of n scores without sorting all of them; ties go to the lower position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

// The threshold of a selection: it contains the scores above `value`, and those equal to it up to position `last`.
struct Cut {
  float value = 0;
  std::int32_t last = -1;
  bool holds(float score, std::int32_t position) const { return score > value || (score == value && position <= last); }
};

// Keeps its buffers between calls. NaN scores are never selected.
class Ranking {
 public:
  // Ascending indices of the k best (all if k ≥ n).
  void select(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out);
  // Indices of the k best in order of rank.
  void rank(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out);
  // Requires 1 ≤ k ≤ n.
  Cut cut(std::span<const float> scores, std::size_t k);

 private:
  void gather_candidates(std::span<const float> scores, std::size_t k);
  std::vector<std::int32_t> candidates_;  // ascending; contains at least the k best
  std::size_t candidate_count_ = 0;
  std::vector<float> values_;
  std::vector<std::uint64_t> order_, spare_;
};

// Raises the scores of the first `head` and the last `tail` above all others.
void rank_first(std::span<float> scores, std::size_t head, std::size_t tail);
// The same for pages of `page` of `tokens` tokens: those with the first `sink` or the last `recent` tokens.
void rank_pages_first(std::span<float> scores, std::int64_t page, std::int64_t tokens, std::int64_t sink,
                      std::int64_t recent);

}  // namespace kvcast::policy
