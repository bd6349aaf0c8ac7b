// Full attention in one captured layer: the reference for every policy, made once per layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/precision.hpp"
#include "policy/layer_input.hpp"
#include "policy_parts/ranking.hpp"
#include "replay/target_recall.hpp"
#include "trace/trace.hpp"

namespace kvcast::replay {

// Immutable after construction and safe to share between threads and policies. Stores the scores of all decode steps
// against all positions, n_q_heads · decode_steps · positions floats, in addition to the layer's own keys, values and
// queries.
class Oracle {
 public:
  // The trace that the layer comes from must outlive it. Policies see keys and values rounded to `cache`; the reference
  // is full attention over the unrounded layer.
  Oracle(std::unique_ptr<trace::Layer> layer, int threads, config::CacheFormat cache = config::Precision::kBf16);

  const trace::Layer& layer() const { return *layer_; }
  // Ends its use.
  trace::LayerStorage take_storage() { return layer_->take_storage(); }
  const policy::LayerInput& input() const { return input_; }
  bool rounded() const { return rounded_ != nullptr; }
  const trace::TraceInfo& info() const { return layer_->info(); }

  // Tokens that the query of step t may attend to: prompt_tokens + t + 1.
  std::int64_t visible(int t) const { return info().prompt_tokens + t + 1; }
  // q·k of these tokens, not scaled.
  std::span<const float> scores(int q_head, int t) const;
  // log Σ exp(q·k / √d) over the visible tokens.
  double log_sum_exp(int q_head, int t) const { return log_sums_[at(q_head, t)]; }
  // Σ softmax · v, head_dim floats.
  std::span<const float> output(int q_head, int t) const;
  // Null if the trace has no targets.
  const FullMass* targets() const { return targets_.get(); }
  // The exact top-k of a row, 1 ≤ k ≤ visible(t), ties to the lower position; `ranking` lends its buffers if k is
  // larger than the precomputed ranking.
  policy::Cut top(int q_head, int t, std::int64_t k, policy::Ranking& ranking) const;

 private:
  std::size_t at(int q_head, int t) const {
    return static_cast<std::size_t>(q_head) * static_cast<std::size_t>(info().decode_steps) +
           static_cast<std::size_t>(t);
  }
  void attend(int q_head, MatrixView values);
  void rank(int q_head);

  std::unique_ptr<trace::Layer> layer_;
  std::unique_ptr<trace::Layer> rounded_;  // null if the cache is not rounded
  policy::LayerInput input_;
  std::size_t ranked_;              // best tokens of a row that are kept in order of rank
  std::vector<policy::Cut> ranks_;  // [q head × step × ranked_]: the k-th best is where the top k ends
  std::vector<double> log_sums_;
  std::vector<float> outputs_;
  std::unique_ptr<FullMass> targets_;
};

}  // namespace kvcast::replay
