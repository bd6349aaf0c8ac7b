// The k best of n scores; ties go to the lower position. Exact, without sorting all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

// Where a selection of the best ends: exactly the scores above `value`, and those equal to it up to position `last`.
struct Cut {
  float value = 0;
  std::int32_t last = -1;
  bool holds(float score, std::int32_t position) const { return score > value || (score == value && position <= last); }
};

// Keeps its buffers between calls. Scores that are not numbers are never selected.
class Ranking {
 public:
  // Ascending indices of the k best (all, where k ≥ n).
  void select(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out);
  // The k best in order of rank.
  void rank(std::span<const float> scores, std::size_t k, std::vector<std::int32_t>& out);
  // 1 ≤ k ≤ n.
  Cut cut(std::span<const float> scores, std::size_t k);

 private:
  void gather_candidates(std::span<const float> scores, std::size_t k);
  std::vector<std::int32_t> candidates_;  // ascending; holds at least the k best
  std::size_t candidate_count_ = 0;
  std::vector<float> values_;
  std::vector<std::uint64_t> order_, spare_;
};

// Scores above all others for the first `head` and the last `tail`.
void rank_first(std::span<float> scores, std::size_t head, std::size_t tail);

}  // namespace kvcast::policy
