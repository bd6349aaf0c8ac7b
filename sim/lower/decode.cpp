#include "lower/decode.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "lower/dense.hpp"

namespace kvcast::lower {

using graph::Lane;
using graph::OpId;

namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace

int DecodeSetting::step_batch() const { return ceil_div(run->workload.batch, run->deployment.pipeline_parallel); }
int DecodeSetting::stage_layers() const { return ceil_div(rank.layers, run->deployment.pipeline_parallel); }

PassSetting DecodeSetting::pass() const {
  return {&run->framework,
          policy,
          rank,
          run->deployment.pipeline_parallel,
          prompt_density,
          temporaries,
          run->speculation ? &*run->speculation : nullptr,
          draft};
}

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
  const double layers = stage.layers_with(config::Mixer::kSliding);
  return {graph::Pool::kHbm, graph::Owner::kSlidingCache,
          setting.run->workload.batch * layers * held * stage.kv_bytes_per_token_layer()};
}

std::vector<policy::MemoryItem> draft_memory(const DecodeSetting& setting, std::int64_t tokens, bool served) {
  const std::optional<config::Speculation>& s = setting.run->speculation;
  if (!s || !s->draft) return {};
  const double weights = config::draft_weight_bytes(*s, setting.draft);
  const double each = setting.draft.kv_bytes_per_token_layer(), batch = setting.run->workload.batch;
  const auto all = static_cast<double>(tokens);
  const double held = setting.draft.full_layers() * all + setting.draft.layers_with(config::Mixer::kSliding) *
                                                              std::min<double>(all, setting.draft.sliding_window);
  return {{graph::Pool::kHbm, graph::Owner::kDraft, weights + (served ? 0 : batch * held * each)}};
}

policy::MemoryItem state_memory(const DecodeSetting& setting) {
  const double states = setting.run->workload.batch * setting.pass().queries();
  return {graph::Pool::kHbm, graph::Owner::kStates, states * stage_of(setting).state_bytes()};
}

std::vector<policy::MemoryItem> decode_memory(const DecodeSetting& setting, std::int64_t tokens) {
  const config::Run& run = *setting.run;
  config::Model model = stage_of(setting);
  const double rows = setting.step_batch() * setting.pass().queries();
  std::vector<policy::MemoryItem> items = {
      {graph::Pool::kHbm, graph::Owner::kWeights, model.weight_bytes()},
      {graph::Pool::kHbm, graph::Owner::kActivations, setting.temporaries * activation_bytes(model, rows, rows)}};
  if (run.framework.quadratic_mask) {
    // One byte per pair of positions up to the bound of the sequence (gpt-fast's causal mask).
    const auto bound = static_cast<double>(setting.lengths.bound());
    items.push_back({graph::Pool::kHbm, graph::Owner::kCausalMask, bound * bound});
  }
  if (run.framework.unpack_operators > 0 && model.cache != config::Precision::kBf16) {
    config::Model plain = model;
    plain.cache = config::Precision::kBf16;
    const double layer = static_cast<double>(tokens) * plain.kv_bytes_per_token_layer();
    items.push_back({graph::Pool::kHbm, graph::Owner::kUnpackedLayer, run.workload.batch * layer});
  }
  if (const std::int64_t page = run.framework.page; page > 0) {
    const auto lacking = static_cast<double>((page - tokens % page) % page);
    items.push_back(
        {graph::Pool::kHbm, graph::Owner::kPartFilledPages, run.workload.batch * lacking * model.kv_bytes_per_token()});
  }
  if (model.sliding_window > 0) items.push_back(sliding_cache(setting, tokens));
  if (model.recurrence) items.push_back(state_memory(setting));
  const bool served = run.speculation && run.speculation->kind == config::Speculation::Kind::kMtp;
  for (policy::MemoryItem& item : draft_memory(setting, tokens, served)) items.push_back(std::move(item));
  model = config::attending(model);
  model.layers = model.full_layers() + (served ? 1 : 0);
  policy::MemoryShape shape{&model, run.workload.batch, tokens, setting.lengths, setting.attended_mean};
  double unused = run.workload.batch * static_cast<double>(tokens) * model.layers * model.kv_bytes_per_token_layer();
  for (policy::MemoryItem& item : setting.policy->memory(shape)) {
    if (item.pool == graph::Pool::kHbm && item.owner == graph::Owner::kKvCache) unused -= item.bytes;
    items.push_back(std::move(item));
  }
  if (run.framework.reserve_full_cache && unused > 0)
    items.push_back({graph::Pool::kHbm, graph::Owner::kReservedCache, unused});
  return items;
}

DecodeWindow::DecodeWindow(const DecodeSetting& setting, std::int64_t context, int steps)
    : DecodeWindow(setting, {context, steps, 0,
                             std::max(context, std::min(context + steps - 1, setting.lengths.bound())), true}) {}

DecodeWindow::DecodeWindow(const DecodeSetting& setting, const SampledSteps& sampled)
    : setting_(setting), sampled_(sampled) {}

void DecodeWindow::take_memory(Block& block) {
  const OpId held = block.join(Lane::kHost, {});
  for (const policy::MemoryItem& item : decode_memory(setting_, sampled_.held)) {
    block.memory(held, item.pool, item.owner, item.bytes);
  }
}

bool DecodeWindow::next_block(std::vector<graph::Op>& out) {
  out.clear();
  if (step_ == sampled_.steps) return false;
  Block block(setting_.run->framework, next_id_, step_ends_.empty() ? -1 : step_ends_.back(), events_, out);
  if (step_ == 0) take_memory(block);
  Pass pass;
  pass.decodes.assign(static_cast<std::size_t>(setting_.step_batch()), {tokens(), setting_.lengths});
  pass.per_query_head = setting_.per_query_head;
  pass.plans_attention = attends_to_more();
  pass.counts = [&](int layer) -> std::span<const policy::HeadCounts> {
    grow_counts(*setting_.policy, pass.decodes, setting_.counts(layer, sampled_.first_draw + step_),
                setting_.counted_tokens, scratch_);
    return scratch_;
  };
  PromptMemory none;
  step_ends_.push_back(add_pass(block, setting_.pass(), pass, none, -1));
  KVCAST_CHECK(step_ends_.back() == block.last());
  next_id_ = block.next();
  ++step_;
  return true;
}

bool DecodeWindow::attends_to_more() const {
  const config::Model& model = setting_.rank;
  const policy::Growth growth = setting_.policy->growth(setting_.lengths);
  const bool slides = model.layers_with(config::Mixer::kSliding) > 0;
  return (model.full_layers() > 0 && (growth.attended > 0 || tokens() <= growth.fill)) ||
         (slides && tokens() <= model.sliding_window);
}

}  // namespace kvcast::lower
