// Prompt queries as centroids of an inverted file (CTkvr's qcIVF). The list of a centroid contains the positions of the
// keys that it scores highest; a new query looks up the lists of the most similar centroids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "policy_parts/host_attention.hpp"

namespace kvcast::policy {

// The prompt queries that become centroids.
enum class CentroidQueries : std::uint8_t { kLast, kFirst, kUniform, kRandom };

// Ascending prompt positions of `count` ≤ prompt queries: the last ones, the first ones, ⌊i·prompt/count⌋ for i = 0, 1,
// …, or a random sample without repetition.
std::vector<std::int64_t> centroid_positions(CentroidQueries which, std::int64_t count, std::int64_t prompt,
                                             const Stream& stream);
// Rows of a trace's queries at these prompt positions. Throws UserError if one is missing.
std::vector<std::size_t> query_rows(const trace::TraceInfo& info, std::span<const std::int64_t> positions);

// The lists of one KV head. A list contains the best `length` keys by max over the group of softmax(q·k / √d); each
// query head's softmax is over all prompt keys, without a causal mask. Only keys in `host` compete.
class CentroidLists {
 public:
  CentroidLists(const trace::Layer& layer, int kv_head, std::span<const std::size_t> rows, Range host,
                std::size_t length);
  // Ascending positions. Centroids are numbered from 0.
  std::span<const std::int32_t> list(std::size_t centroid) const {
    return std::span(lists_).subspan(centroid * length_, length_);
  }

 private:
  std::size_t length_;
  std::vector<std::int32_t> lists_;
};

// Similarity of decode queries to centroids and to earlier decode queries: max over the group of the cosine, [steps ×
// (centroids + steps)]. Decode query t is centroid number `centroids + t`.
std::vector<float> query_similarity(const trace::Layer& layer, int kv_head, std::span<const std::size_t> rows);

}  // namespace kvcast::policy
