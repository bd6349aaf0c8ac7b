// Prefill of the prompts through the model, group by group, chunk by chunk and layer by layer; one block per chunk.
#pragma once

#include <vector>

#include "lower/decode.hpp"
#include "lower/pass.hpp"

namespace kvcast::lower {

// The groups of prompts in the blocks of a prefill.
struct Repetition {
  std::size_t group = 0;   // blocks of a group
  std::size_t first = 0;   // first block of the group that is repeated
  std::int64_t times = 0;  // groups that are left out after it
  bool operator==(const Repetition&) const = default;
};

// Workload::prefill_batch sequences are prefilled together (0: the whole batch), one group after another, in chunks of
// Workload::prefill_chunk tokens (0: the whole prompt at once). A policy that reads the prompt in blocks
// (Policy::prompt_blocks) has no chunk longer than a block and acts after each block; later queries see the tokens that
// it held then. The time of the first token is when the last group has its own.
//
// Prompts of different lengths are read one length after the other, the shortest first.
//
// Groups between the third and the last full one do the work of the third again. They are not lowered unless all groups
// are wanted: the last full group follows the third, and finds the memory of all groups before it held (Repetition).
// Prompts of different lengths are all lowered.
//
// Under pipeline stages one micro-batch is followed through all of them, and memory is that of the first stage when the
// last micro-batch is read: what the policy keeps of the others is there.
//
// Memory: a layer's KV pairs are allocated when its chunk starts. The policy's hook runs after each block, and once its
// work has finished the evicted pairs are freed. After the last block all KV pairs of the layer are freed, and the
// policy's own storage of that layer is allocated. Activations are held from the first op of a chunk to its last.
class Prefill final : public graph::WorkSource, PromptMemory {
 public:
  explicit Prefill(const DecodeSetting& setting, bool all_groups = false);
  bool next_block(std::vector<graph::Op>& out) override;
  // The groups of the blocks so far.
  const Repetition& repetition() const { return repetition_; }

 private:
  // Requests of equal lengths, and what follows from these.
  struct Prompts {
    Requests requests;
    std::vector<policy::MemoryItem> storage;   // after all prompts of this length
    std::vector<policy::PromptBlocks> blocks;  // by layer
  };
  PromptPart next_chunk() const;
  const Prompts& now() const { return prompts_[done_lengths_]; }
  // Returns whether the layer's cache is on the GPU whose memory is counted, and grows with the prompt.
  bool holds(int layer) const { return layer < stage_attending_layers_ && !setting_.rank.slides(layer); }
  double token_bytes(int layer) const;  // in the layer's cache
  void begins(LoweredBlock& block, int layer, graph::OpId at, const PromptPart& part) override;
  graph::OpId after_layers(LoweredBlock& block, double rows, graph::OpId op) override;
  void settles(LoweredBlock& block, int layer, graph::OpId before, graph::OpId attention,
               const PromptPart& part) override;
  void take_fixed(LoweredBlock& block);
  void leave_out_groups();
  void take_left_out(LoweredBlock& block);

  DecodeSetting setting_;
  Events events_;
  std::vector<Prompts> prompts_;  // the shortest first
  std::vector<policy::MemoryItem> other_micro_batches_;
  int stage_attending_layers_ = 1, stage_full_layers_ = 1;
  bool all_groups_ = false;
  std::size_t done_lengths_ = 0;
  int together_ = 0;            // sequences of the first group
  int done_sequences_ = 0;      // of this length, in finished groups, those left out included
  int left_out_sequences_ = 0;  // whose memory the next block takes
  std::size_t done_blocks_ = 0;
  Repetition repetition_;
  double activations_ = 0;        // bytes held by the chunk in progress
  std::int64_t done_tokens_ = 0;  // in the group in progress
  graph::OpId next_id_ = 0, gate_ = -1;
};

}  // namespace kvcast::lower
