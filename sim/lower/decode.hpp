// A window of decode steps at one context as a stream of blocks, one block per step.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "config/run.hpp"
#include "graph/source.hpp"
#include "lower/pass.hpp"
#include "policy/policy.hpp"

namespace kvcast::lower {

// Counts of a layer at a step, for requests of equal lengths: [sequences × heads], drawn from a replay.
using CountSource = std::function<std::span<const policy::HeadCounts>(int layer, std::int64_t step)>;

// Requests of equal lengths; refers to objects that must outlive it.
struct Requests {
  policy::Lengths lengths;
  int sequences = 0;
  const policy::Policy* policy = nullptr;
  CountSource counts;
  std::int64_t counted_tokens = 0;  // context at which the counts were taken
  double attended_mean = 0;         // KV pairs that a head attends to, mean; for storage that depends on it
  // Share of the causal pairs that sparse prompt attention computes, by layer; empty: all pairs.
  std::function<double(int layer)> prompt_density;
};

// Inputs of a window: the requests with the longest prompts, which are all that `shorter` leaves of the batch.
struct DecodeSetting : Requests {
  const config::Run* run = nullptr;
  config::Model rank;             // one GPU's part of the run's model (config::rank_model)
  std::vector<Requests> shorter;  // in ascending order of their prompts; none under pipeline stages
  bool per_query_head = false;
  double temporaries = 1;    // factor on the bytes of activations and attention scores
  config::Model draft = {};  // one GPU's part of the draft of speculation, if there is one

  int own_batch() const;  // sequences that one GPU attends to
  // Number of sequences in a step: under pipeline stages the batch is split into as many micro-batches.
  int step_batch() const;
  int stage_layers() const;  // layers of one GPU
  // The part that is independent of the workload, with the policy and the density of `requests`.
  PassSetting pass(const Requests& requests) const;
  // All requests of a batch of so many sequences, those with the shortest prompts first.
  std::vector<Requests> by_length(int batch) const;
  // The context of requests at which the longest ones have one of `tokens`: all have generated as many.
  std::int64_t context_of(const Requests& requests, std::int64_t tokens) const {
    return tokens - lengths.prompt_tokens + requests.lengths.prompt_tokens;
  }
};

// Steps drawn from the replay: first_draw, first_draw + 1, … of CountSource. They either represent the steps around one
// context and are all lowered at it, so that equal steps are the same work, or they are consecutive, and each has one
// more cached token than the one before.
struct SampledSteps {
  std::int64_t context = 0;  // cached tokens of the longest sequences, the new one included
  int steps = 1;
  std::int64_t first_draw = 0;
  std::int64_t held = 0;  // context that determines the memory
  bool consecutive = false;
};

// One block per step. The first block starts with a marker that allocates the memory. Counts are adjusted to the
// context by the policy's growth.
class DecodeWindow final : public graph::WorkSource {
 public:
  // Consecutive steps, the first with `context` tokens cached (the new one included). Memory is that of the last of
  // them, or of the run's end if the window extends beyond it.
  DecodeWindow(const DecodeSetting& setting, std::int64_t context, int steps);
  DecodeWindow(const DecodeSetting& setting, const SampledSteps& sampled);
  bool next_block(std::vector<graph::Op>& out) override;
  // Returns whether steps so far have noted ops for later ones to wait for.
  bool has_notes() const { return !events_.empty(); }
  // Ids of the last op of each step so far, which delivers the token.
  const std::vector<graph::OpId>& step_ends() const { return step_ends_; }

 private:
  void take_memory(LoweredBlock& block);
  std::int64_t tokens() const { return sampled_.context + (sampled_.consecutive ? step_ : 0); }  // of this step
  // Returns whether attention covers more tokens than in the step before.
  bool attends_to_more() const;

  DecodeSetting setting_;
  std::vector<Requests> requests_;  // of a step
  SampledSteps sampled_;
  int step_ = 0;
  Events events_;
  std::vector<policy::HeadCounts> scratch_;
  std::vector<graph::OpId> step_ends_;
  graph::OpId next_id_ = 0;
};

// Returns the part of the model that the GPU of one pipeline stage holds.
config::Model stage_of(const DecodeSetting& setting);
// Returns the cache of the sliding-window layers, for the whole batch with `tokens` in each of the longest sequences.
policy::MemoryItem sliding_cache(const DecodeSetting& setting, std::int64_t tokens);
// Returns the weights of the draft of speculation and its cache of the whole batch, without that of a layer which the
// policy serves.
std::vector<policy::MemoryItem> draft_memory(const DecodeSetting& setting, std::int64_t tokens, bool served);
// Returns the recurrent states of the whole batch on the GPU of one stage; under speculation one after each token.
policy::MemoryItem state_memory(const DecodeSetting& setting);
// Returns the storage of a policy for requests with `tokens` each, without what all requests share if others have it.
// `full`: the model of the layers that the policy acts on.
std::vector<policy::MemoryItem> policy_memory(const Requests& requests, const config::Model& full, std::int64_t tokens,
                                              bool with_shared);
// Returns the bytes held while decoding with `tokens` cached in each of the longest sequences: weights, the policy's
// storage, activations of a step, and the mask of frameworks that keep one.
std::vector<policy::MemoryItem> decode_memory(const DecodeSetting& setting, std::int64_t tokens);

}  // namespace kvcast::lower
