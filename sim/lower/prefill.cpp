#include "lower/prefill.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "lower/dense.hpp"
#include "lower/eager.hpp"
#include "policy/costs.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::Lane;
using graph::OpId;
using graph::Pool;

namespace {

// Groups that are lowered before the first one that is left out. In the first the host and the lanes begin idle; the
// second and the third show whether the work that a group leaves to the next one grows.
constexpr std::size_t kGroupsBefore = 3;

}  // namespace

Prefill::Prefill(const DecodeSetting& setting, Owners& owners, bool all_groups)
    : setting_(setting), owners_(owners), all_groups_(all_groups) {
  config::Model stage = stage_of(setting_);
  stage.layers = stage_full_layers_ = stage.full_layers();
  const policy::MemoryShape shape{&stage, sequences(), setting_.lengths.prompt_tokens, setting_.lengths,
                                  setting_.attended_mean};
  storage_ = setting_.policy->memory(shape);
  for (int layer = 0; layer < setting_.rank.layers; ++layer) {
    blocks_.push_back(setting_.policy->prompt_blocks(setting_.rank, layer));
    KVCAST_CHECK(blocks_.back().tokens == blocks_.front().tokens);
  }
  for (const char* owner : {"weights", "causal mask", "activations", "KV cache", "attention scores"}) owners_.id(owner);
  if (setting_.rank.sliding_window > 0) owners_.id(sliding_cache(setting_, 0).owner);
  for (const policy::MemoryItem& item : storage_) owners_.id(item.owner);
}

// Allocates the weights and the framework's memory for the whole run.
void Prefill::take_fixed(Block& block) {
  const OpId held = block.join(Lane::kHost, {});
  block.memory(held, Pool::kHbm, owners_.id("weights"), stage_of(setting_).weight_bytes());
  if (setting_.run->framework.quadratic_mask) {
    const auto bound = static_cast<double>(setting_.lengths.bound());
    block.memory(held, Pool::kHbm, owners_.id("causal mask"), bound * bound);
  }
  if (setting_.rank.sliding_window == 0) return;
  const policy::MemoryItem sliding = sliding_cache(setting_, setting_.lengths.prompt_tokens);
  block.memory(held, sliding.pool, owners_.id(sliding.owner), sliding.bytes);
}

Prefill::Chunk Prefill::next_chunk() const {
  const config::Workload& workload = setting_.run->workload;
  const std::int64_t prompt = setting_.lengths.prompt_tokens;
  Chunk chunk;
  const int together = workload.prefill_batch > 0 ? workload.prefill_batch : sequences();
  chunk.sequences = std::min(together, sequences() - done_sequences_);
  chunk.start = done_tokens_;
  const std::int64_t block = blocks_.front().tokens > 0 ? blocks_.front().tokens : prompt;
  chunk.block = chunk.start / block * block;
  const std::int64_t block_end = std::min(prompt, chunk.block + block);
  chunk.length = std::min(workload.prefill_chunk > 0 ? workload.prefill_chunk : prompt, block_end - done_tokens_);
  chunk.acts = chunk.end() == block_end;
  chunk.last = chunk.end() == prompt;
  return chunk;
}

bool Prefill::next_block(std::vector<graph::Op>& out) {
  out.clear();
  const config::Run& run = *setting_.run;
  const config::Model& model = setting_.rank;
  if (done_sequences_ == sequences()) return false;
  const Chunk chunk = next_chunk();
  Block block(run.framework, next_id_, gate_, events_, out);
  if (gate_ < 0) take_fixed(block);
  if (left_out_sequences_ > 0) take_left_out(block);

  const double activations =
      setting_.temporaries * activation_bytes(model, chunk.rows(), chunk.last ? chunk.sequences : 0,
                                              static_cast<double>(run.framework.mlp_slice));
  OpId op = block.join(Lane::kCompute, {});
  block.memory(op, Pool::kHbm, owners_.id("activations"), activations);
  op = enter_layers(block, model, chunk.rows(), op);
  block.plan_attention();
  for (int layer = 0; layer < model.layers; ++layer) {
    if (layer > 0 && layer % setting_.stage_layers() == 0) op = hand_over(block, model, chunk.rows(), op);
    op = prefill_layer(block, layer, op, chunk);
  }
  if (chunk.last) {
    op = block.between_steps(chunk.sequences, false, head_and_sample(block, model, chunk.sequences, op));
  } else {
    block.enter_layer(-1);
    op = block.host(Lane::kHost, Kind::kSync, "chunk done", graph::HostCall::kStreamSync, 1, {op});
    op = block.between_steps(chunk.sequences, false, op);
  }
  block.memory(op, Pool::kHbm, owners_.id("activations"), -activations);
  gate_ = op;
  next_id_ = block.next();
  done_tokens_ = chunk.last ? 0 : done_tokens_ + chunk.length;
  ++done_blocks_;
  if (!chunk.last) return true;
  done_sequences_ += chunk.sequences;
  if (repetition_.group == 0) repetition_.group = done_blocks_;
  leave_out_groups();
  return true;
}

// Goes on with the last group if the third one is done.
void Prefill::leave_out_groups() {
  if (all_groups_ || done_blocks_ != kGroupsBefore * repetition_.group) return;
  const int together = done_sequences_ / static_cast<int>(kGroupsBefore);
  const int last = (sequences() - 1) / together;  // number of the last group, from 0
  const int left_out = last - static_cast<int>(kGroupsBefore);
  if (left_out <= 0) return;
  repetition_.first = done_blocks_ - repetition_.group, repetition_.times = left_out;
  left_out_sequences_ = left_out * together;
  done_sequences_ += left_out_sequences_;
}

// Allocates what the policy keeps of the prompts that are left out.
void Prefill::take_left_out(Block& block) {
  const OpId held = block.join(Lane::kBackupThread, {});
  const double share = static_cast<double>(left_out_sequences_) / sequences();
  for (const policy::MemoryItem& item : storage_) {
    block.memory(held, item.pool, owners_.id(item.owner), item.bytes * share);
  }
  left_out_sequences_ = 0;
}

OpId Prefill::prefill_layer(Block& block, int layer, OpId after, const Chunk& chunk) {
  const config::Run& run = *setting_.run;
  const config::Model& model = setting_.rank;
  const double rows = chunk.rows();
  block.enter_layer(layer);
  const OpId input = block.join(Lane::kCompute, {after});
  if (holds(layer)) block.memory(input, Pool::kHbm, owners_.id("KV cache"), rows * model.kv_bytes_per_token_layer());

  policy::PrefillChunk part{
      &model, layer, chunk.sequences, chunk.start, chunk.end(), layer_blocks(layer).held_at(chunk.start), 1};
  const double expanded = chunk.sequences * (part.held + part.length());
  const OpId ready = before_attention(block, model, rows, input, model.latent ? expanded : 0);
  if (model.slides(layer)) {
    part.held = std::min<double>(part.held, model.sliding_window);
    part.density = std::min(1.0, part.length() * model.sliding_window / part.pairs());
    const OpId attended = block.kernel(Lane::kCompute, Kind::kAttention, "sliding-window attention",
                                       policy::causal_attention(part), {ready});
    return after_attention(block, model, layer, rows, attended);
  }
  if (setting_.prompt_density) part.density = setting_.prompt_density(layer);
  block.set_ready(ready);
  const OpId attention = run.framework.eager_attention ? attend_eagerly(block, part, ready)
                                                       : setting_.policy->prefill_attention(part, block);
  if (chunk.acts) settle_layer(block, layer, attention, chunk);
  return after_attention(block, model, layer, rows, attention);
}

OpId Prefill::attend_eagerly(Block& block, const policy::PrefillChunk& part, OpId ready) {
  const config::Model& model = *part.model;
  const double rows = part.length() * part.batch;
  const double seen = part.held + part.length();
  EagerAttention work;
  work.scores = rows * seen * model.n_q_heads;
  work.kv_bytes = seen * part.batch * model.kv_bytes_per_token_layer();
  work.q_bytes = rows * model.n_q_heads * model.head_dim * config::Model::kElementBytes;
  work.group = model.group();
  work.head_dim = model.head_dim;
  const OpId begin = block.join(Lane::kCompute, {ready});
  const double bytes = setting_.temporaries * eager_score_bytes(work);
  block.memory(begin, Pool::kHbm, owners_.id("attention scores"), bytes);
  const OpId attended = eager_attention(block, work, begin);
  block.memory(attended, Pool::kHbm, owners_.id("attention scores"), -bytes);
  return attended;
}

// Runs the policy's hook, then replaces the layer's cache of the prompt by the part that the policy keeps.
void Prefill::settle_layer(Block& block, int layer, OpId attention, const Chunk& chunk) {
  policy::PrefillLayer shape;
  shape.model = &setting_.rank;
  shape.layer = layer;
  shape.batch = chunk.sequences;
  shape.prompt_tokens = setting_.lengths.prompt_tokens;
  shape.start = chunk.block;
  shape.end = chunk.end();
  block.set_ready(attention);
  const OpId before = block.last();
  setting_.policy->prefill_layer(shape, block);
  const OpId after = block.last();

  // The hook's ops may run on several lanes; the exchange waits for the last op of each lane that it used.
  const double token = chunk.sequences * setting_.rank.kv_bytes_per_token_layer();
  const policy::PromptBlocks& blocks = layer_blocks(layer);
  const double there = blocks.held_at(chunk.block) + static_cast<double>(chunk.end() - chunk.block);
  const double gone = chunk.last ? there : there - blocks.held_at(chunk.end());
  if (gone <= 0 || !holds(layer)) return;
  const OpId freed = block.join_all(before + 1, after, attention);
  block.memory(freed, Pool::kHbm, owners_.id("KV cache"), -gone * token);
  if (!chunk.last) return;
  const OpId kept = block.join(Lane::kBackupThread, {freed});
  const double share = static_cast<double>(chunk.sequences) / sequences() / stage_full_layers_;
  for (const policy::MemoryItem& item : storage_)
    block.memory(kept, item.pool, owners_.id(item.owner), item.bytes * share);
}

}  // namespace kvcast::lower
