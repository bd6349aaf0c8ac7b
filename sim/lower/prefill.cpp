#include "lower/prefill.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "lower/dense.hpp"

namespace kvcast::lower {

using graph::Lane;
using graph::OpId;
using graph::Owner;
using graph::Pool;

namespace {

// Groups that are lowered before the first one that is left out. In the first the host and the lanes begin idle; the
// second and the third show whether the work that a group leaves to the next one grows.
constexpr std::size_t kGroupsBefore = 3;

}  // namespace

Prefill::Prefill(const DecodeSetting& setting, bool all_groups)
    : setting_(setting), all_groups_(all_groups || !setting.shorter.empty()) {
  config::Model stage = config::attending(stage_of(setting_));
  stage_attending_layers_ = stage.layers;
  stage.layers = stage_full_layers_ = stage.full_layers();
  const config::Model attending = config::attending(setting_.rank);
  for (Requests& r : setting_.by_length(setting_.step_batch())) {
    Prompts& p = prompts_.emplace_back(Prompts{std::move(r), {}, {}});
    p.storage = policy_memory(p.requests, stage, p.requests.lengths.prompt_tokens, prompts_.size() == 1);
    for (int layer = 0; layer < attending.layers; ++layer) {
      p.blocks.push_back(p.requests.policy->prompt_blocks(attending, layer, p.requests.lengths));
      KVCAST_CHECK(p.blocks.back().tokens == p.blocks.front().tokens);
    }
  }
  if (const int others = setting_.own_batch() - setting_.step_batch(); others > 0) {
    Requests read = prompts_.back().requests;
    read.sequences = others;
    other_micro_batches_ = policy_memory(read, stage, read.lengths.prompt_tokens, false);
  }
}

// Allocates the weights and the framework's memory for the whole run, and what has been read before.
void Prefill::take_fixed(LoweredBlock& block) {
  const OpId held = block.join(Lane::kHost, {});
  const config::Model stage = stage_of(setting_);
  block.memory(held, Pool::kHbm, Owner::kWeights, stage.gpu_weight_bytes());
  block.memory(held, Pool::kDram, Owner::kWeights, stage.host_weight_bytes());
  for (const policy::MemoryItem& item : other_micro_batches_) block.memory(held, item.pool, item.owner, item.bytes);
  for (const policy::MemoryItem& item : draft_memory(setting_, setting_.lengths.prompt_tokens, false))
    block.memory(held, item.pool, item.owner, item.bytes);
  if (setting_.run->framework.quadratic_mask) {
    const auto bound = static_cast<double>(setting_.lengths.bound());
    block.memory(held, Pool::kHbm, Owner::kCausalMask, bound * bound);
  }
  if (setting_.rank.state_bytes() > 0) {
    const policy::MemoryItem states = state_memory(setting_);
    block.memory(held, states.pool, states.owner, states.bytes);
  }
  if (setting_.rank.sliding_window == 0) return;
  const policy::MemoryItem sliding = sliding_cache(setting_, setting_.lengths.prompt_tokens);
  block.memory(held, sliding.pool, sliding.owner, sliding.bytes);
}

PromptPart Prefill::next_chunk() const {
  const config::Workload& workload = setting_.run->workload;
  const Requests& requests = now().requests;
  const std::int64_t prompt = requests.lengths.prompt_tokens, of_policy = now().blocks.front().tokens;
  const std::int64_t block = of_policy > 0 ? of_policy : prompt;
  const int together = workload.prefill_batch > 0 ? workload.prefill_batch : requests.sequences;
  PromptPart part;
  part.sequences = std::min(together, requests.sequences - done_sequences_);
  part.request = requests.lengths;
  part.start = done_tokens_;
  part.block = part.start / block * block;
  const std::int64_t block_end = std::min(prompt, part.block + block);
  part.end = std::min(block_end, part.start + (workload.prefill_chunk > 0 ? workload.prefill_chunk : prompt));
  part.acts = part.end == block_end;
  part.read = now().blocks.front().read;
  return part;
}

bool Prefill::next_block(std::vector<graph::Op>& out) {
  out.clear();
  const config::Run& run = *setting_.run;
  if (done_lengths_ == prompts_.size()) return false;
  const PromptPart chunk = next_chunk();
  LoweredBlock block(run.framework, next_id_, gate_, events_, out);
  if (gate_ < 0) take_fixed(block);
  if (left_out_sequences_ > 0) take_left_out(block);

  activations_ =
      setting_.temporaries * activation_bytes(setting_.rank, chunk.rows(), chunk.last() ? chunk.sequences : 0,
                                              static_cast<double>(run.framework.mlp_slice));
  const OpId begin = block.join(Lane::kCompute, {});
  block.memory(begin, Pool::kHbm, Owner::kActivations, activations_);
  PassSequences pass;
  pass.prompts = {chunk};
  gate_ = add_pass(block, setting_.pass(now().requests), pass, *this, begin);
  block.memory(gate_, Pool::kHbm, Owner::kActivations, -activations_);
  next_id_ = block.next();
  done_tokens_ = chunk.last() ? 0 : chunk.end;
  ++done_blocks_;
  if (!chunk.last()) return true;
  done_sequences_ += chunk.sequences;
  if (repetition_.group == 0) repetition_.group = done_blocks_, together_ = chunk.sequences;
  leave_out_groups();
  if (done_sequences_ == now().requests.sequences) ++done_lengths_, done_sequences_ = 0;
  return true;
}

// Goes on with the last full group if the third one is done: it may hold more memory than a smaller one after it.
void Prefill::leave_out_groups() {
  if (all_groups_ || done_blocks_ != kGroupsBefore * repetition_.group) return;
  const int last = now().requests.sequences / together_ - 1;  // number of the last full group, from 0
  const int left_out = last - static_cast<int>(kGroupsBefore);
  if (left_out <= 0) return;
  repetition_.first = done_blocks_ - repetition_.group, repetition_.times = left_out;
  left_out_sequences_ = left_out * together_;
  done_sequences_ += left_out_sequences_;
}

// Allocates what the policy keeps of the prompts that are left out.
void Prefill::take_left_out(LoweredBlock& block) {
  const OpId held = block.join(Lane::kBackupThread, {});
  const double share = static_cast<double>(left_out_sequences_) / now().requests.sequences;
  for (const policy::MemoryItem& item : now().storage) {
    block.memory(held, item.pool, item.owner, item.bytes * share);
  }
  left_out_sequences_ = 0;
}

// Transformers before 4.45: the head over all rows of a chunk. Both copies of its logits are held until the next token
// is chosen; the layers' activations are gone by then.
OpId Prefill::after_layers(LoweredBlock& block, double rows, OpId op) {
  if (!setting_.run->framework.prompt_logits) return op;
  constexpr double kHalf = 2, kSingle = 4;  // bytes
  op = block.join(Lane::kCompute, {op});
  block.memory(op, Pool::kHbm, Owner::kActivations, -std::exchange(activations_, 0));
  const double hidden = setting_.rank.hidden, vocab = setting_.rank.vocab, logits = rows * vocab;
  const double held = logits * (kHalf + kSingle) + rows * hidden * kHalf;
  block.enter_layer(-1);
  const graph::Gemm head{rows, vocab, hidden, kHalf};
  op = block.compute(graph::Kind::kGemm, "head of the prompt", head, {op});
  block.memory(op, Pool::kHbm, Owner::kPromptLogits, held);
  const graph::Kernel single{graph::KernelClass::kElementwise, logits * kHalf, logits * kSingle};
  op = block.compute(graph::Kind::kSmall, "prompt logits to single", single, {op});
  const OpId freed = block.join(Lane::kCompute, {op});
  block.memory(freed, Pool::kHbm, Owner::kPromptLogits, -held);
  return freed;
}

double Prefill::token_bytes(int layer) const {
  const config::Model& rank = setting_.rank;
  return (rank.plain(layer) ? config::with_plain_cache(rank) : rank).kv_bytes_per_token_layer();
}

void Prefill::begins(LoweredBlock& block, int layer, OpId at, const PromptPart& part) {
  if (!holds(layer)) return;
  block.memory(at, Pool::kHbm, Owner::kKvCache, part.rows() * token_bytes(layer));
}

// Replaces the layer's cache of the prompt by the part that the policy keeps.
void Prefill::settles(LoweredBlock& block, int layer, OpId before, OpId attention, const PromptPart& part) {
  const OpId after = block.last();
  const double token = part.sequences * token_bytes(layer);
  const policy::PromptBlocks& blocks = now().blocks[static_cast<std::size_t>(layer)];
  const double there = blocks.held_at(part.block) + part.read_of(part.end - part.block);
  const double gone = part.last() ? there : there - blocks.held_at(part.end);
  if (gone <= 0 || !holds(layer)) return;
  // The policy's ops may run on several lanes; the exchange waits for the last op of each lane that it used.
  const OpId freed = block.join_all(before + 1, after, attention);
  block.memory(freed, Pool::kHbm, Owner::kKvCache, -gone * token);
  if (!part.last()) return;
  const OpId kept = block.join(Lane::kBackupThread, {freed});
  const double share = static_cast<double>(part.sequences) / now().requests.sequences / stage_full_layers_;
  for (const policy::MemoryItem& item : now().storage) block.memory(kept, item.pool, item.owner, item.bytes * share);
}

}  // namespace kvcast::lower
