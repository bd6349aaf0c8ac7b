// A window of decode steps at one context as a stream of blocks, one block a step.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "config/run.hpp"
#include "graph/source.hpp"
#include "lower/block.hpp"
#include "policy/policy.hpp"

namespace kvcast::lower {

// What happened in a layer at a step, for all sequences of the batch: [batch × heads], drawn from a replay.
using CountSource = std::function<std::span<const policy::HeadCounts>(int layer, std::int64_t step)>;

// Everything that a window needs; refers to objects that outlive it.
struct DecodeSetting {
  const config::Run* run = nullptr;
  const policy::Policy* policy = nullptr;
  config::Model rank;  // what one GPU computes of the run's model (config::rank_model)
  policy::Lengths lengths;
  CountSource counts;
  bool per_query_head = false;
  std::int64_t counted_tokens = 0;  // context that the counts were taken at
  double attended_mean = 0;         // KV pairs a head attends to, for storage that depends on it
  // Share of the causal pairs that sparse prompt attention computes, by layer; none: all of them.
  std::function<double(int layer)> prompt_density;
  double temporaries = 1;  // factor on the bytes of activations and attention scores

  // Sequences of a step: under pipeline stages the batch comes in as many parts.
  int step_batch() const;
  int stage_layers() const;  // that a GPU holds
};

// Steps drawn from the replay: first_draw, first_draw + 1, … of CountSource. They stand for the steps around one
// context and are lowered at it, so that steps which do the same are the same work; or they are consecutive, and each
// has one more token cached than the one before.
struct SampledSteps {
  std::int64_t context = 0;  // tokens cached a sequence, the new one included
  int steps = 1;
  std::int64_t first_draw = 0;
  std::int64_t held = 0;  // context at which memory is taken
  bool consecutive = false;
};

// A block a step. The first block starts with a marker that takes the memory; counts follow the context by the policy's
// growth.
class DecodeWindow final : public graph::WorkSource {
 public:
  // Consecutive steps, the first with `context` tokens cached (the new one included); memory is that held at the last
  // of them, or at the run's end where the window goes on beyond it.
  DecodeWindow(const DecodeSetting& setting, std::int64_t context, int steps, Owners& owners);
  DecodeWindow(const DecodeSetting& setting, const SampledSteps& sampled, Owners& owners);
  bool next_block(std::vector<graph::Op>& out) override;
  // Whether steps so far have noted ops for later ones to wait for.
  bool has_notes() const { return !events_.empty(); }
  // Id of the last op of each step so far: the token.
  const std::vector<graph::OpId>& step_ends() const { return step_ends_; }

 private:
  void take_memory(Block& block);
  graph::OpId decode_layer(Block& block, int layer, graph::OpId after);
  std::span<const policy::HeadCounts> counts_at(int layer, std::int64_t tokens);

  DecodeSetting setting_;
  SampledSteps sampled_;
  int step_ = 0;
  Owners& owners_;
  Events events_;
  std::vector<policy::HeadCounts> scratch_;
  std::vector<graph::OpId> step_ends_;
  graph::OpId next_id_ = 0;
};

// The model as the GPU of one pipeline stage holds it.
config::Model stage_of(const DecodeSetting& setting);
// The cache of the layers with a sliding window, for the whole batch with `tokens` in each sequence.
policy::MemoryItem sliding_cache(const DecodeSetting& setting, std::int64_t tokens);
// Bytes held while decoding with `tokens` cached a sequence: weights, the policy's storage, activations of a step, the
// mask of frameworks that keep one.
std::vector<policy::MemoryItem> decode_memory(const DecodeSetting& setting, std::int64_t tokens);

}  // namespace kvcast::lower
