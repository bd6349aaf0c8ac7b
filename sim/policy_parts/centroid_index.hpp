// Queries as centroids of an inverted file (CTkvr's qcIVF): prompt queries, and for each the positions of the keys that
// it scores highest. A new query looks up the lists of the prompt queries that it resembles.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "policy_parts/host_attention.hpp"

namespace kvcast::policy {

enum class Place : std::uint8_t { kLast, kFirst, kUniform, kRandom };
const std::vector<std::string>& place_names();
Place parse_place(std::string_view name);  // one of place_names()

// Ascending prompt positions of `count` ≤ prompt queries: the last, the first, ⌊i·prompt/count⌋ for i = 0, 1, …, or as
// many drawn without repetition.
std::vector<std::int64_t> centroid_positions(Place place, std::int64_t count, std::int64_t prompt,
                                             const Stream& stream);
// Rows of a trace's queries at these prompt positions. UserError where it lacks one.
std::vector<std::size_t> query_rows(const trace::TraceInfo& info, std::span<const std::int64_t> positions);

// The lists of one KV head. A list holds the best `length` keys by max over the group of softmax(q·k / √d), each query
// head's softmax over all prompt keys, without a causal mask; only keys in `host` compete.
class CentroidLists {
 public:
  CentroidLists(const trace::Layer& layer, int kv_head, std::span<const std::size_t> rows, Range host,
                std::size_t length);
  // Ascending positions; centroids are numbered from 0.
  std::span<const std::int32_t> list(std::size_t centroid) const {
    return std::span(lists_).subspan(centroid * length_, length_);
  }

 private:
  std::size_t length_;
  std::vector<std::int32_t> lists_;
};

// Likeness of decode queries to centroids and to the decode queries before them: max over the group of the cosine,
// [steps × (centroids + steps)], decode query t being centroid number `centroids + t`.
std::vector<float> query_likeness(const trace::Layer& layer, int kv_head, std::span<const std::size_t> rows);

}  // namespace kvcast::policy
