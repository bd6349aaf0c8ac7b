// HNSW, an insertion into n keys (faiss/impl/HNSW.cpp: search_neighbors_to_add, shrink_neighbor_list, add_link):
// - a greedy walk down log_M n layers, M edges each;
// - the beam of the lowest layer: ef expansions of 2M edges, half of which lead to what was seen before: ef·M, at most
//   n;
// - the choice of neighbours: ef candidates, each against those chosen so far, half of M on average: ef·M / 2;
// - the way back: the key enters the lists of M neighbours. A full list of 2M is chosen anew, 2M · M / 2, which leaves
//   half of it, so that this happens once in M entries: M a neighbour, M² in all.
// RoarGraph, a key (index_bipartite.cpp, matchyc/RoarGraph): L expansions of up to M edges, half of which lead to what
// was seen before, at most n keys; the choice of M out of L, each against those chosen so far, half of M on average.
//
// k-means (faiss/Clustering.cpp): each round is a search of all training keys among the centroids, which Faiss does by
// a library's matrix product for 20 queries and more, and new means. min(n, 256·lists) keys are trained on
// (max_points_per_centroid).
#include "policy_parts/vector_index.hpp"

#include <algorithm>
#include <cmath>

#include "policy/costs.hpp"

namespace kvcast::policy {
namespace {

constexpr double kTogether = 64;             // keys that a core takes at a time
constexpr double kTrainedPerCentroid = 256;  // faiss::ClusteringParameters::max_points_per_centroid

double index_row(const IndexedKeys& what) { return what.d * kIndexElement; }  // bytes of a key

}  // namespace

graph::OpId insert_all(const IndexedKeys& what, double scored, double edges, LayerOps& ops, graph::OpId after) {
  const double pieces = std::ceil(what.keys / kTogether), inserted = what.keys / pieces;
  // All pieces of a head go over the same keys.
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

graph::OpId cluster_all(const IndexedKeys& what, const Lists& lists, LayerOps& ops, graph::OpId after) {
  const auto assign = [&](const char* label, double keys) {
    const double pieces = std::ceil(keys / kTogether), together = keys / pieces;
    graph::CpuWork work;
    work.items = what.heads * pieces;
    work.bytes_per_item = together * index_row(what);
    work.unit_bytes = together * index_row(what);
    work.product_flops_per_item = 2 * together * lists.count * what.d;
    work.flops_per_item = 2 * together * what.d;  // distances to the nearest, sums of the new means
    after = ops.cpu(label, work, {after});
  };
  const double trained = std::min(what.keys, kTrainedPerCentroid * lists.count);
  for (int round = 0; round < static_cast<int>(lists.rounds); ++round) assign("k-means round", trained);
  assign("keys to their lists", what.keys);
  return after;
}

}  // namespace kvcast::policy
