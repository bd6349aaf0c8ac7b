// KeyDiff's scores of cached keys by their likeness to an anchor.
#pragma once

#include <vector>

#include "base/matrix.hpp"
#include "policy/weights.hpp"

namespace kvcast::policy {

enum class Anchor { kMean, kMeanRaw, kMedian, kPairwise };
enum class Metric { kCosine, kDot, kEuclid };

// −(likeness of each held key to the anchor of all held keys): the higher, the more distinct. keys: [positions × d].
//   anchors: mean of the L2-normalised keys; mean of the keys; their element-wise median (of an even number the mean of
//   the two in the middle); pairwise: the sum of likenesses to all held keys in place of an anchor.
//   metrics: cosine, dot product, −(Euclidean distance).
void score_distinctness(const MatrixView& keys, const Held& held, Anchor anchor, Metric metric,
                        std::vector<float>& out);

// The same scores for a list that changes by a few tokens from call to call, as in decoding: sorted columns for the
// median and sums over all pairs of distances are brought up to date, not made anew.
class RunningDistinctness {
 public:
  // The keys must outlive it.
  RunningDistinctness(const MatrixView& keys, Anchor anchor, Metric metric)
      : keys_(keys), anchor_(anchor), metric_(metric) {}
  void score(const Held& held, std::vector<float>& out);

 private:
  void sort_columns(const Held& held);
  void update_columns(const Held& added, const Held& removed);
  void update_sums(const Held& held, const Held& added, const Held& removed);

  MatrixView keys_;
  Anchor anchor_;
  Metric metric_;
  Held known_;                               // the list of the last call
  std::vector<std::vector<float>> columns_;  // kMedian: of known_, by dimension, ascending
  std::vector<double> sums_;                 // kPairwise with kEuclid: of known_, distances to all of it
};

// Operations of one eviction from n keys of d elements, with the anchor `mean` and cosine, as the paper counts them
// (arXiv 2504.15364, appendix B.1).
struct KeyDiffOperations {
  double multiplications = 0, additions = 0, divisions = 0, roots = 0;
  // Its weights: additions and roots 1, multiplications 3, divisions 47.
  double weighted() const { return additions + roots + 3 * multiplications + 47 * divisions; }
};
KeyDiffOperations count_keydiff(double n, double d);

}  // namespace kvcast::policy
