// Scores of KVzip, which KVzap predicts.
#pragma once

#include <vector>

#include "trace/trace.hpp"

namespace kvcast::policy {

// Scores of tokens first … end − 1 of a KV head: the largest weight that a query of the group gives each of them while
// they are repeated, from position `end` on, in pieces of `chunk` tokens, over the first `sink` tokens, the piece as
// cached and the piece as repeated so far. The trace must contain the queries of these tokens.
std::vector<float> repeated_weights(const trace::Layer& layer, int kv_head, std::int64_t sink, std::int64_t chunk,
                                    std::int64_t first, std::int64_t end);

}  // namespace kvcast::policy
