// Traces that a test writes number by number, and the lists that it expects.
#pragma once

#include <algorithm>
#include <vector>

#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using Positions = std::vector<std::int32_t>;

struct Paper {
  std::int64_t prompt = 0;
  int head_dim = 1;
  std::vector<float> keys;                         // of the one KV head: positions × head_dim
  std::vector<std::vector<float>> prompt_queries;  // by query head: the last prompt queries, one after the other
  std::vector<std::vector<float>> queries;         // by query head: the decode queries
};

inline MemoryTrace write_down(const Paper& paper) {
  TraceShape shape;
  shape.kv_heads = 1;
  shape.group = static_cast<int>(paper.queries.size());
  shape.head_dim = paper.head_dim;
  shape.prompt = paper.prompt;
  shape.steps = static_cast<int>(paper.queries[0].size()) / paper.head_dim;
  shape.window = paper.prompt_queries.empty() ? 0 : static_cast<int>(paper.prompt_queries[0].size()) / paper.head_dim;
  return {shape, [paper](trace::Layer& layer) {
            std::copy(paper.keys.begin(), paper.keys.end(), layer.mutable_keys(0));
            std::fill_n(layer.mutable_values(0), paper.keys.size(), 0.0f);
            for (std::size_t h = 0; h < paper.queries.size(); ++h) {
              float* out = layer.mutable_queries(static_cast<int>(h));
              if (!paper.prompt_queries.empty()) {
                out = std::copy(paper.prompt_queries[h].begin(), paper.prompt_queries[h].end(), out);
              }
              std::copy(paper.queries[h].begin(), paper.queries[h].end(), out);
            }
          }};
}

inline Selected select(const std::string& name, const std::string& parameters, const Paper& paper) {
  const MemoryTrace trace = write_down(paper);
  return select(name, parameters, *trace.load(0, 1));
}

}  // namespace kvcast::tests
