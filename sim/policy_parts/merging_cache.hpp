// KV pairs of one head that change as evicted pairs are merged into them (D2O).
#pragma once

#include <vector>

#include "policy/weights.hpp"

namespace kvcast::policy {

// The slots removed by an eviction, in position order: each slot's pair, and the most similar key that stayed.
struct Departures {
  std::vector<float> keys, values;   // [slots × d]
  std::vector<double> similarity;    // largest cosine to a key that stayed
  std::vector<std::size_t> nearest;  // index of that key; the first one of ties
};

class MergingCache {
 public:
  // Starts with the trace's pairs of the held tokens.
  MergingCache(const trace::Layer& layer, int kv_head, const Held& held);
  void append(const trace::Layer& layer, int kv_head, std::int32_t position);
  // Computes the softmax weights of a query over all pairs, and its output.
  void attend(const float* query, std::vector<float>& weights, std::vector<float>& output) const;
  // Computes only the weights, over the first `count` pairs.
  void weigh(const float* query, std::size_t count, std::vector<float>& weights) const;
  // Keeps only the pairs with these ascending indices, at least one.
  Departures shrink(const std::vector<std::int32_t>& stay);
  // Replaces each pair that is nearest to some merging slots by the mean of itself and similarity · pair of each of
  // these slots.
  void merge(const Departures& gone, const std::vector<bool>& merges);

 private:
  std::size_t size() const { return keys_.size() / d_; }
  std::size_t d_;
  std::vector<float> keys_, values_;
};

}  // namespace kvcast::policy
