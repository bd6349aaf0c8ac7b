#include "lower/decode.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "lower/dense.hpp"
#include "policy/growth.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::Lane;
using graph::OpId;

std::vector<policy::MemoryItem> decode_memory(const DecodeSetting& setting, std::int64_t tokens) {
  const config::Run& run = *setting.run;
  const config::Model& model = run.model;
  std::vector<policy::MemoryItem> items = {
      {graph::Pool::kHbm, "weights", model.weight_bytes()},
      {graph::Pool::kHbm, "activations",
       setting.temporaries * activation_bytes(model, run.workload.batch, run.workload.batch)}};
  if (run.framework.quadratic_mask) {
    // One byte for each pair of positions up to the bound of the sequence (gpt-fast's causal mask).
    const auto bound = static_cast<double>(setting.lengths.bound());
    items.push_back({graph::Pool::kHbm, "causal mask", bound * bound});
  }
  if (const std::int64_t page = run.framework.page; page > 0) {
    const auto lacking = static_cast<double>((page - tokens % page) % page);
    items.push_back(
        {graph::Pool::kHbm, "part-filled pages", run.workload.batch * lacking * model.kv_bytes_per_token()});
  }
  policy::MemoryShape shape{&model, run.workload.batch, tokens, setting.lengths, setting.attended_mean};
  for (policy::MemoryItem& item : setting.policy->memory(shape)) items.push_back(std::move(item));
  return items;
}

DecodeWindow::DecodeWindow(const DecodeSetting& setting, std::int64_t context, int steps, Owners& owners)
    : DecodeWindow(setting,
                   {context, steps, 0, std::max(context, std::min(context + steps - 1, setting.lengths.bound())), true},
                   owners) {}

DecodeWindow::DecodeWindow(const DecodeSetting& setting, const SampledSteps& sampled, Owners& owners)
    : setting_(setting), sampled_(sampled), owners_(owners) {}

void DecodeWindow::take_memory(Block& block) {
  const OpId held = block.join(Lane::kHost, {});
  for (const policy::MemoryItem& item : decode_memory(setting_, sampled_.held)) {
    block.memory(held, item.pool, owners_.id(item.owner), item.bytes);
  }
}

bool DecodeWindow::next_block(std::vector<graph::Op>& out) {
  out.clear();
  if (step_ == sampled_.steps) return false;
  const config::Model& model = setting_.run->model;
  Block block(setting_.run->framework, next_id_, step_ends_.empty() ? -1 : step_ends_.back(), events_, out);
  if (step_ == 0) take_memory(block);
  OpId op = enter_layers(block, model, setting_.run->workload.batch, -1);
  for (int layer = 0; layer < model.layers; ++layer) op = decode_layer(block, layer, op);
  const double sequences = setting_.run->workload.batch;
  step_ends_.push_back(block.between_steps(sequences, head_and_sample(block, model, sequences, op)));
  KVCAST_CHECK(step_ends_.back() == block.last());
  next_id_ = block.next();
  ++step_;
  return true;
}

OpId DecodeWindow::decode_layer(Block& block, int layer, OpId after) {
  const config::Run& run = *setting_.run;
  const double rows = run.workload.batch;
  block.enter_layer(layer);
  block.set_ready(before_attention(block, run.model, rows, after));
  policy::DecodeLayer shape;
  shape.model = &run.model;
  shape.layer = layer;
  shape.batch = run.workload.batch;
  shape.tokens = sampled_.context + (sampled_.consecutive ? step_ : 0);
  shape.heads = counts_at(layer, shape.tokens);
  shape.per_query_head = setting_.per_query_head;
  setting_.policy->decode_layer(shape, block);
  return after_attention(block, run.model, rows, block.taken_done());
}

std::span<const policy::HeadCounts> DecodeWindow::counts_at(int layer, std::int64_t tokens) {
  const std::span<const policy::HeadCounts> seen = setting_.counts(layer, sampled_.first_draw + step_);
  const policy::GrowthBy here(setting_.policy->growth(), tokens - setting_.counted_tokens);
  scratch_.clear();
  for (const policy::HeadCounts& head : seen) {
    scratch_.push_back(here(head));
    // Counts of a later context do not exceed an earlier one.
    scratch_.back().attended = std::min(scratch_.back().attended, tokens);
  }
  return scratch_;
}

}  // namespace kvcast::lower
