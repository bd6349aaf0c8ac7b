// KeyDiff's scores of cached keys by their similarity to an anchor.
#pragma once

#include <vector>

#include "base/matrix.hpp"
#include "policy/weights.hpp"

namespace kvcast::policy {

enum class Anchor { kMean, kMeanRaw, kMedian, kPairwise };
enum class Metric { kCosine, kDot, kEuclid };

// Computes −(similarity of each held key to the anchor of all held keys): the higher, the more distinct. keys:
// [positions × d].
//
// Anchors: mean of the L2-normalised keys; mean of the keys; their element-wise median (for an even number the mean of
// the middle two); pairwise: the sum of similarities to all held keys instead of an anchor.
//
// Metrics: cosine, dot product, −(Euclidean distance).
void score_distinctness(const MatrixView& keys, const Held& held, Anchor anchor, Metric metric,
                        std::vector<float>& out);

// The same scores for a list that changes by a few tokens from call to call, as in decoding: updates sorted columns
// (median) and sums of distances over all pairs instead of computing them again.
class RunningDistinctness {
 public:
  // The keys must outlive the object.
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
  std::vector<std::vector<float>> columns_;  // kMedian: ascending values of known_ by dimension
  std::vector<double> sums_;                 // kPairwise with kEuclid: distances of each of known_ to all of it
};

// Operations of one eviction from n keys of d elements, with the anchor `mean` and the metric cosine, as counted in the
// paper (arXiv 2504.15364, appendix B.1).
struct KeyDiffOperations {
  double multiplications = 0, additions = 0, divisions = 0, roots = 0;
};
KeyDiffOperations count_keydiff(double n, double d);

}  // namespace kvcast::policy
