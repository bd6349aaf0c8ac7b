// One pass of a model over sequences of any lengths: those that decode have one new token, those whose prompts are read
// have more. A decode step, a chunk of prompts and a mixed step are passes.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "config/framework.hpp"
#include "config/model.hpp"
#include "config/speculation.hpp"
#include "lower/block.hpp"
#include "policy/policy.hpp"

namespace kvcast::lower {

// The engine and its model, whatever requests they serve; refers to objects that must outlive it.
struct PassSetting {
  const config::Framework* framework = nullptr;
  const policy::Policy* policy = nullptr;
  config::Model rank;  // one GPU's part of the model (config::rank_model)
  int stages = 1;      // of the pipeline
  // Share of the causal pairs that sparse prompt attention computes, by layer; empty: all pairs.
  std::function<double(int layer)> prompt_density = {};
  double temporaries = 1;  // factor on the bytes of activations and attention scores
  const config::Speculation* speculation = nullptr;
  config::Model draft = {};  // one GPU's part of its draft, if there is one

  int stage_layers() const { return (rank.layers + stages - 1) / stages; }              // layers of one GPU
  int queries() const { return speculation == nullptr ? 1 : speculation->verified(); }  // of a sequence that decodes
};

// A sequence in a pass: it decodes if its whole prompt is cached, and samples a token if its prompt ends in the pass.
struct PassSequence {
  std::int64_t cached = 0;  // tokens before the pass
  std::int64_t added = 1;   // new tokens
  policy::Lengths request;
  bool decodes() const { return cached >= request.prompt_tokens; }
};

// Tokens [start, end) of prompts of equal lengths.
struct PromptPart {
  int sequences = 1;
  policy::Lengths request;
  std::int64_t start = 0, end = 0;
  std::int64_t block = 0;  // start of the block after which the policy acts (Policy::prompt_blocks)
  bool acts = false;       // the policy acts after this part
  double read = 1;         // share of its tokens that the model reads (policy::PromptBlocks)
  bool last() const { return end == request.prompt_tokens; }
  double rows() const { return read_of(end - start) * sequences; }
  double read_of(std::int64_t tokens) const { return read * static_cast<double>(tokens); }
};

// The sequences of a pass.
struct PassSequences {
  std::vector<policy::Sequence> decodes;
  std::vector<PromptPart> prompts;
  // Counts of a layer, [decodes × heads]; valid until the next call.
  std::function<std::span<const policy::HeadCounts>(int layer)> counts;
  bool per_query_head = false;
  bool plans_attention = true;  // attention has another shape than in the pass before

  int sequences() const;
  double rows(int queries) const;  // new tokens, so many of each sequence that decodes
  int sampled(int queries) const;  // rows of which the head chooses a token
};

// Groups sequences: those that decode in their order, then prompts, equal ones together. `policy` decides where its
// blocks of prompts end; no part may cross such an end.
PassSequences pass_of(std::span<const PassSequence> sequences, const policy::Policy& policy, const config::Model& rank);

// Appends counts of sequences, moved from the context of a replay to each sequence's own: [sequences × heads] from
// `counts` of as many sequences.
void grow_counts(const policy::Policy& policy, std::span<const policy::Sequence> sequences,
                 std::span<const policy::HeadCounts> counts, std::int64_t counted_tokens,
                 std::vector<policy::HeadCounts>& out);

// Follows the memory of prompts through a pass; by default nothing is allocated.
class PromptMemory {
 public:
  virtual ~PromptMemory() = default;
  // Called before a layer appends keys and values of the part. Layers are those of config::attending().
  virtual void begins(LoweredBlock& /*block*/, int /*layer*/, graph::OpId /*at*/, const PromptPart&) {}
  // Called after all layers of a pass that reads `rows` tokens of prompts; the head waits for the result.
  virtual graph::OpId after_layers(LoweredBlock& /*block*/, double /*rows*/, graph::OpId op) { return op; }
  // Called after the policy acted on a layer: its ops are those after `before`, and attention is done at `attention`.
  virtual void settles(LoweredBlock& /*block*/, int /*layer*/, graph::OpId /*before*/, graph::OpId /*attention*/,
                       const PromptPart&) {}
};

// Adds the pass after `after`, up to the host's work before the next one. Products see the sum of rows, the head the
// sampled rows, attention each sequence's own context. Under speculation the draft's passes come first, and sequences
// that decode have a row for each drafted token in addition to their own. Returns the last op.
graph::OpId add_pass(LoweredBlock& block, const PassSetting& setting, const PassSequences& pass, PromptMemory& memory,
                     graph::OpId after);

}  // namespace kvcast::lower
