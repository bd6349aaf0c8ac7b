// Attention statistics of the heads of a captured layer, printed by `trace info` and judged by `trace check`.
#pragma once

#include <vector>

#include "trace/targets.hpp"
#include "trace/trace.hpp"

namespace kvcast::trace {

// Means over the decode steps of one query head. Masses are shares of its softmax.
struct HeadStatistics {
  double sink_mass = 0;         // on position 0
  double recent_mass = 0;       // on the last kRecent positions, its own included; not finite: overflow
  double own_mass = 0;          // on its own position
  double target_mass = 0;       // on the step's targets, over the steps that have some
  double effective_tokens = 0;  // exp of the entropy
  double query_cosine = 0;      // cosine of each decode query with the one before; 1 if there is only one step
  double top_overlap = 0;       // share of the top 1/16 of positions that was in it a step before
  double key_mean_cosine = 0;   // cosine of the mean decode query with the mean key; below 0: opposed

  static constexpr int kRecent = 64;
};

// One entry per query head. Makes the layer's decode scores.
std::vector<HeadStatistics> head_statistics(const Layer& layer, const Targets& targets, int threads);

// Statistics of one KV head, over all positions.
struct KeyStatistics {
  double norm_mean = 0, norm_max = 0;
  double value_norm_mean = 0;
  double anisotropy = 0;      // mean cosine of a key with the mean key
  double fast_pair_mean = 0;  // of the fastest RoPE pair: length of the mean over root mean square; near 0 after RoPE
};
KeyStatistics key_statistics(const Layer& layer, int kv_head);

}  // namespace kvcast::trace
