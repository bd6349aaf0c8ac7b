// The work of a policy when a pass verifies several tokens of each sequence.
#pragma once

#include <span>
#include <vector>

#include "policy/forwarded_ops.hpp"
#include "policy/policy.hpp"

namespace kvcast::lower {

// Turns work that is stated for one query of each sequence into that of several. Where all of them read what is kept,
// they are further query heads of one kernel; where each selects, they are sequences of their own, but share a read of
// the index. Without `packed` kernels share nothing.
class Verification final : public policy::ForwardedOps {
 public:
  Verification(policy::LayerOps& ops, int queries, bool selects, bool packed)
      : ForwardedOps(ops), queries_(queries), selects_(selects), packed_(packed) {}

  graph::OpId kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work,
                     After after) override;
  graph::OpId attention(const graph::DecodeAttention& work, After after) override;

 private:
  double queries_;
  bool selects_, packed_;
};

// Each sequence of a pass, or each of its heads' counts, as often as it has queries.
template <typename T>
void repeat_for_queries(std::span<const T> all, std::size_t each, int queries, std::vector<T>& out) {
  out.clear();
  for (std::size_t i = 0; i < all.size(); i += each) {
    for (int q = 0; q < queries; ++q) out.insert(out.end(), all.begin() + i, all.begin() + i + each);
  }
}

}  // namespace kvcast::lower
