// What building the indices of vector libraries takes on the CPU, in operations.
#pragma once

#include "policy/layer_ops.hpp"

namespace kvcast::policy {

// Keys to be indexed: each of `heads` (sequences × KV heads) has an index of its own.
struct IndexedKeys {
  double heads = 0, keys = 0;  // keys a head
  double d = 128;
};

inline constexpr double kIndexElement = 4;  // bytes of a channel of a key: libraries keep single precision

// Every key is inserted by scoring `scored` others, whose rows lie anywhere, and written with `edges` edges. All cores
// insert, some keys at a time each.
graph::OpId insert_all(const IndexedKeys& what, double scored, double edges, LayerOps& ops, graph::OpId after);

// Keys that Hnsw (Malkov, Yashunin, arXiv 1603.09320) scores to insert one: M edges a key, twice as many in the lowest
// layer, a beam of `beam` while inserting.
double hnsw_scored(double keys, double degree, double beam);

// The same of RoarGraph's last stage (Chen et al., arXiv 2408.08933): each key is searched for in the graph that the
// queries gave, with a beam of `beam`, and takes up to `degree` of what it met.
double roargraph_scored(double keys, double degree, double beam);

// An inverted file as Faiss builds it: k-means of `rounds` rounds over at most 256 keys a list, then every key to its
// list; products of keys and centroids by a library.
struct Lists {
  double count = 0, rounds = 0;  // count a head
};
graph::OpId cluster_all(const IndexedKeys& what, const Lists& lists, LayerOps& ops, graph::OpId after);

}  // namespace kvcast::policy
