// CPU operations that build the indices of vector libraries.
#pragma once

#include "policy/layer_ops.hpp"

namespace kvcast::policy {

// Keys to be indexed: each of `heads` (sequences × KV heads) has its own index.
struct IndexedKeys {
  double heads = 0, keys = 0;  // keys per head
  double d = 128;
};

inline constexpr double kIndexElement = 4;  // bytes of a channel of a key: libraries store single precision

// Inserts every key by scoring `scored` others, at arbitrary addresses, and writes it with `edges` edges. All cores
// insert, each several keys at a time.
OpId insert_all(const IndexedKeys& what, double scored, double edges, LayerOps& ops, OpId after);

// Keys that Hnsw (Malkov, Yashunin, arXiv 1603.09320) scores to insert one: `degree` edges per key, twice as many in
// the lowest layer, and a beam of `beam`.
double hnsw_scored(double keys, double degree, double beam);

// The same for RoarGraph's last stage (Chen et al., arXiv 2408.08933): each key is searched for, with a beam of `beam`,
// in the graph derived from the queries, and gets up to `degree` of the keys visited.
double roargraph_scored(double keys, double degree, double beam);

// An inverted file as Faiss builds it: k-means of `rounds` rounds over at most 256 keys per list, then the assignment
// of every key to its list; a library multiplies keys and centroids.
struct Lists {
  double count = 0, rounds = 0;  // lists per head
};
OpId cluster_all(const IndexedKeys& what, const Lists& lists, LayerOps& ops, OpId after);

}  // namespace kvcast::policy
