// Traces that a test writes number by number, and the lists that it expects.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

inline const float kLn2 = std::log(2.0f);  // a score of n·ln 2 weighs 2 to the power of n

using Positions = std::vector<std::int32_t>;

struct Paper {
  std::int64_t prompt = 0;
  int head_dim = 1;
  std::vector<float> keys;                         // KV heads × positions × head_dim
  std::vector<std::vector<float>> prompt_queries;  // by query head: the last prompt queries, one after the other
  std::vector<std::vector<float>> queries;         // by query head: the decode queries
  std::vector<float> values = {};                  // as keys; none: all 0
  int kv_heads = 1;                                // a group has the same number of query heads each
};

inline MemoryTrace write_down(const Paper& paper) {
  TraceShape shape;
  shape.kv_heads = paper.kv_heads;
  shape.group = static_cast<int>(paper.queries.size()) / paper.kv_heads;
  shape.head_dim = paper.head_dim;
  shape.prompt = paper.prompt;
  shape.steps = static_cast<int>(paper.queries[0].size()) / paper.head_dim;
  shape.window = paper.prompt_queries.empty() ? 0 : static_cast<int>(paper.prompt_queries[0].size()) / paper.head_dim;
  return {shape, [paper](trace::Layer& layer) {
            const std::size_t each = paper.keys.size() / static_cast<std::size_t>(paper.kv_heads);
            for (int h = 0; h < paper.kv_heads; ++h) {
              const std::size_t first = static_cast<std::size_t>(h) * each;
              std::copy_n(paper.keys.data() + first, each, layer.mutable_keys(h));
              std::fill_n(layer.mutable_values(h), each, 0.0f);
              if (!paper.values.empty()) std::copy_n(paper.values.data() + first, each, layer.mutable_values(h));
            }
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

// The attention output that the policy itself gives for query head 0 in the last step; empty if it gives none.
inline std::vector<float> last_output(const std::string& name, const std::string& parameters, const Paper& paper) {
  const MemoryTrace trace = write_down(paper);
  const auto layer = trace.load(0, 1);
  const policy::LayerInput input(*layer);
  const auto policy = make(name, parameters, {layer->info().prompt_tokens, layer->info().decode_steps});
  const auto selector = policy->selector(input);
  policy::LayerSelection step;
  selector->prefill(step);
  for (int t = 0; t < layer->info().decode_steps; ++t) selector->step(t, step);
  const std::span<const float> out = selector->output(0);
  return {out.begin(), out.end()};
}

}  // namespace kvcast::tests
