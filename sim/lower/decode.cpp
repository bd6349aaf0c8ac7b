#include "lower/decode.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "lower/dense.hpp"
#include "policy/costs.hpp"
#include "policy/growth.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::Lane;
using graph::OpId;

namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace

int DecodeSetting::step_batch() const { return ceil_div(run->workload.batch, run->deployment.pipeline_parallel); }
int DecodeSetting::stage_layers() const { return ceil_div(rank.layers, run->deployment.pipeline_parallel); }

config::Model stage_of(const DecodeSetting& setting) {
  config::Model stage = setting.rank;
  stage.layers = setting.stage_layers();
  // The first stage has the embedding, and the last one the head, which is as large.
  stage.tie_embeddings = stage.tie_embeddings || setting.run->deployment.pipeline_parallel > 1;
  return stage;
}

policy::MemoryItem sliding_cache(const DecodeSetting& setting, std::int64_t tokens) {
  const config::Model stage = stage_of(setting);
  const auto held = static_cast<double>(std::min<std::int64_t>(tokens, stage.sliding_window));
  const double layers = stage.layers - stage.full_layers();
  return {graph::Pool::kHbm, "sliding-window cache",
          setting.run->workload.batch * layers * held * stage.kv_bytes_per_token_layer()};
}

std::vector<policy::MemoryItem> decode_memory(const DecodeSetting& setting, std::int64_t tokens) {
  const config::Run& run = *setting.run;
  config::Model model = stage_of(setting);
  const double rows = setting.step_batch();
  std::vector<policy::MemoryItem> items = {
      {graph::Pool::kHbm, "weights", model.weight_bytes()},
      {graph::Pool::kHbm, "activations", setting.temporaries * activation_bytes(model, rows, rows)}};
  if (run.framework.quadratic_mask) {
    // One byte per pair of positions up to the bound of the sequence (gpt-fast's causal mask).
    const auto bound = static_cast<double>(setting.lengths.bound());
    items.push_back({graph::Pool::kHbm, "causal mask", bound * bound});
  }
  if (const std::int64_t page = run.framework.page; page > 0) {
    const auto lacking = static_cast<double>((page - tokens % page) % page);
    items.push_back(
        {graph::Pool::kHbm, "part-filled pages", run.workload.batch * lacking * model.kv_bytes_per_token()});
  }
  if (model.sliding_window > 0) items.push_back(sliding_cache(setting, tokens));
  model.layers = model.full_layers();
  policy::MemoryShape shape{&model, run.workload.batch, tokens, setting.lengths, setting.attended_mean};
  double unused = run.workload.batch * static_cast<double>(tokens) * model.layers * model.kv_bytes_per_token_layer();
  for (policy::MemoryItem& item : setting.policy->memory(shape)) {
    if (item.pool == graph::Pool::kHbm && item.owner == "KV cache") unused -= item.bytes;
    items.push_back(std::move(item));
  }
  if (run.framework.reserve_full_cache && unused > 0) items.push_back({graph::Pool::kHbm, "reserved cache", unused});
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
  const config::Model& model = setting_.rank;
  const double rows = setting_.step_batch();
  Block block(setting_.run->framework, next_id_, step_ends_.empty() ? -1 : step_ends_.back(), events_, out);
  if (step_ == 0) take_memory(block);
  OpId op = enter_layers(block, model, rows, -1);
  // One plan serves all layers, because their attention has the same shape.
  if (attends_to_more()) block.plan_attention();
  for (int layer = 0; layer < model.layers; ++layer) {
    if (layer > 0 && layer % setting_.stage_layers() == 0) op = hand_over(block, model, rows, op);
    op = decode_layer(block, layer, op);
  }
  step_ends_.push_back(
      block.between_steps(rows, setting_.run->policy.name != "full", head_and_sample(block, model, rows, op)));
  KVCAST_CHECK(step_ends_.back() == block.last());
  next_id_ = block.next();
  ++step_;
  return true;
}

bool DecodeWindow::attends_to_more() const {
  const config::Model& model = setting_.rank;
  const policy::Growth growth = setting_.policy->growth();
  const bool slides = model.full_layers() < model.layers;
  return (model.full_layers() > 0 && (growth.attended > 0 || tokens() <= growth.fill)) ||
         (slides && tokens() <= model.sliding_window);
}

OpId DecodeWindow::decode_layer(Block& block, int layer, OpId after) {
  const config::Model& model = setting_.rank;
  const double rows = setting_.step_batch();
  block.enter_layer(layer);
  block.set_ready(before_attention(block, model, rows, after));
  policy::DecodeLayer shape;
  shape.model = &model;
  shape.layer = layer;
  shape.batch = setting_.step_batch();
  shape.tokens = tokens();
  if (model.slides(layer)) {
    const std::int64_t seen = std::min<std::int64_t>(shape.tokens, model.sliding_window);
    scratch_.assign(static_cast<std::size_t>(shape.batch * model.n_kv_heads), {.attended = seen});
    shape.heads = scratch_;
    return after_attention(block, model, layer, rows,
                           block.attention(policy::attention_over(shape, 0), {block.ready()}));
  }
  shape.heads = counts_at(layer, shape.tokens);
  shape.per_query_head = setting_.per_query_head;
  setting_.policy->decode_layer(shape, block);
  OpId attended = block.taken_done();
  if (setting_.run->framework.layer_sync) {
    attended = block.host(Lane::kHost, Kind::kSync, "scalar of the layer", graph::HostCall::kItemSync, 1, {attended});
  }
  return after_attention(block, model, layer, rows, attended, true);
}

std::span<const policy::HeadCounts> DecodeWindow::counts_at(int layer, std::int64_t tokens) {
  const std::span<const policy::HeadCounts> seen = setting_.counts(layer, sampled_.first_draw + step_);
  const policy::GrowthBy here(setting_.policy->growth(), setting_.counted_tokens, tokens);
  scratch_.clear();
  for (const policy::HeadCounts& head : seen) {
    scratch_.push_back(here(head));
    // Counts from a longer context are limited to this one.
    scratch_.back().attended = std::min(scratch_.back().attended, tokens);
  }
  return scratch_;
}

}  // namespace kvcast::lower
