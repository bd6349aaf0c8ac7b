// HNSW, one insertion into n keys (faiss/impl/HNSW.cpp: search_neighbors_to_add, shrink_neighbor_list, add_link):
// - a greedy walk down log_M n layers, M edges each;
// - the beam of the lowest layer: ef expansions of 2M edges, half of which lead to visited keys: ef·M, at most n;
// - the selection of neighbours: ef candidates, each compared with those selected so far, M/2 on average: ef·M / 2;
// - the back edges: the key is added to the lists of M neighbours. A full list of 2M is selected again, 2M · M / 2,
// which leaves half of it, so that this happens once in M additions: M per neighbour, M² in all.
//
// RoarGraph, per key (index_bipartite.cpp, matchyc/RoarGraph): L expansions of up to M edges, half of which lead to
// visited keys, at most n keys; the selection of M out of L, each compared with those selected so far, M/2 on average.
//
// k-means (faiss/Clustering.cpp): each round searches the centroids for all training keys, with a library's matrix
// product if there are at least 20 queries, and computes new means. It trains on min(n, 256·lists) keys
// (max_points_per_centroid).
#include "policy_parts/vector_index.hpp"

#include <algorithm>
#include <cmath>

#include "policy/costs.hpp"

namespace kvcast::policy {
namespace {

constexpr double kTogether = 64;             // keys that a core processes at a time
constexpr double kTrainedPerCentroid = 256;  // faiss::ClusteringParameters::max_points_per_centroid

double index_row(const IndexedKeys& what) { return what.d * kIndexElement; }  // bytes of a key

}  // namespace

OpId insert_all(const IndexedKeys& what, double scored, double edges, LayerOps& ops, OpId after) {
  const double pieces = std::ceil(what.keys / kTogether), inserted = what.keys / pieces;
  // All pieces of a head read the same keys.
  return ops.cpu("build graph",
                 {.items = what.heads * pieces,
                  .bytes_per_item = inserted * (scored * index_row(what) + edges * kIndexBytes),
                  .flops_per_item = 2 * inserted * scored * what.d,
                  .unit_bytes = index_row(what),
                  .places_per_item = inserted * scored,
                  .region_bytes = what.keys * index_row(what) / pieces},
                 {after});
}

double hnsw_scored(double keys, double degree, double beam) {
  const double walk = degree * std::log(std::max(2.0, keys)) / std::log(std::max(2.0, degree));
  return std::min(keys, beam * degree) + walk + beam * degree / 2 + degree * degree;
}

double roargraph_scored(double keys, double degree, double beam) {
  return std::min(keys, beam * degree / 2) + beam * degree / 2;
}

OpId cluster_all(const IndexedKeys& what, const Lists& lists, LayerOps& ops, OpId after) {
  const auto assign = [&](const char* label, double keys) {
    const double pieces = std::ceil(keys / kTogether), together = keys / pieces;
    CpuWork work;
    work.items = what.heads * pieces;
    work.bytes_per_item = together * index_row(what);
    work.unit_bytes = together * index_row(what);
    work.product_flops_per_item = 2 * together * lists.count * what.d;
    work.flops_per_item = 2 * together * what.d;  // distances to the nearest centroid, sums of the new means
    after = ops.cpu(label, work, {after});
  };
  const double trained = std::min(what.keys, kTrainedPerCentroid * lists.count);
  for (int round = 0; round < static_cast<int>(lists.rounds); ++round) assign("k-means round", trained);
  assign("keys to their lists", what.keys);
  return after;
}

}  // namespace kvcast::policy
