#include "lower/decode.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "lower/dense.hpp"

namespace kvcast::lower {

using graph::Lane;
using graph::OpId;

namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Bytes of a token in all sliding layers.
double sliding_bytes_per_token(const config::Model& model) {
  return model.layers_with(config::Mixer::kSliding) * config::sliding_layers(model).kv_bytes_per_token_layer();
}

}  // namespace

int DecodeSetting::own_batch() const { return run->deployment.own_sequences(run->workload.batch); }
int DecodeSetting::step_batch() const { return ceil_div(own_batch(), run->deployment.pipeline_parallel); }
int DecodeSetting::stage_layers() const { return ceil_div(rank.layers, run->deployment.pipeline_parallel); }

PassSetting DecodeSetting::pass(const Requests& requests) const {
  return {&run->framework,
          requests.policy,
          rank,
          run->deployment.pipeline_parallel,
          requests.prompt_density,
          temporaries,
          run->speculation ? &*run->speculation : nullptr,
          draft};
}

std::vector<Requests> DecodeSetting::by_length(int batch) const {
  std::vector<Requests> all = shorter;
  all.push_back(*this);
  for (const Requests& requests : shorter) batch -= requests.sequences;
  all.back().sequences = batch;
  return all;
}

config::Model stage_of(const DecodeSetting& setting) {
  config::Model stage = setting.rank;
  stage.layers = setting.stage_layers();
  // The first stage has the embedding, and the last one the head, which is as large.
  if (setting.run->deployment.pipeline_parallel > 1) {
    stage.tie_embeddings = true;
    stage.plain_ends /= 2;  // a stage has one end of the model
  }
  return stage;
}

policy::MemoryItem sliding_cache(const DecodeSetting& setting, std::int64_t tokens) {
  const config::Model stage = stage_of(setting);
  double held = 0;
  for (const Requests& r : setting.by_length(setting.own_batch())) {
    const std::int64_t context = setting.context_of(r, tokens);
    held += r.sequences * static_cast<double>(std::min<std::int64_t>(context, stage.sliding_window));
  }
  return {graph::Pool::kHbm, graph::Owner::kSlidingCache, held * sliding_bytes_per_token(stage)};
}

std::vector<policy::MemoryItem> draft_memory(const DecodeSetting& setting, std::int64_t tokens, bool served) {
  const std::optional<config::Speculation>& s = setting.run->speculation;
  if (!s || !s->draft) return {};
  const double weights = config::draft_weight_bytes(*s, setting.draft);
  double held = 0;  // bytes of all sequences and layers
  for (const Requests& r : setting.by_length(setting.own_batch())) {
    const auto all = static_cast<double>(setting.context_of(r, tokens));
    held +=
        r.sequences * (setting.draft.kv_bytes_per_token() * all +
                       sliding_bytes_per_token(setting.draft) * std::min<double>(all, setting.draft.sliding_window));
  }
  return {{graph::Pool::kHbm, graph::Owner::kDraft, weights + (served ? 0 : held)}};
}

policy::MemoryItem state_memory(const DecodeSetting& setting) {
  const config::Model stage = stage_of(setting);
  const double sequences = setting.own_batch();
  if (stage.compressed)  // windows and rows that are not yet entries, which rejected tokens leave as they are
    return {graph::Pool::kHbm, graph::Owner::kSlidingCache, sequences * stage.state_bytes()};
  return {graph::Pool::kHbm, graph::Owner::kStates, sequences * setting.pass(setting).queries() * stage.state_bytes()};
}

std::vector<policy::MemoryItem> policy_memory(const Requests& requests, const config::Model& full, std::int64_t tokens,
                                              bool with_shared) {
  auto items =
      policy::storage(*requests.policy, {&full, requests.sequences, tokens, requests.lengths, requests.attended_mean});
  if (!with_shared) std::erase_if(items, [](const policy::MemoryItem& item) { return item.shared; });
  if (const double index = full.index_bytes_per_token(); index > 0) {
    const double bytes = items.front().bytes * index / full.kv_bytes_per_token();
    items.front().bytes -= bytes;
    items.push_back(policy::in_hbm(graph::Owner::kIndexKeys, bytes));
  }
  return items;
}

std::vector<policy::MemoryItem> decode_memory(const DecodeSetting& setting, std::int64_t tokens) {
  const config::Run& run = *setting.run;
  config::Model model = stage_of(setting);
  const std::vector<Requests> requests = setting.by_length(setting.own_batch());
  const double rows = setting.step_batch() * setting.pass(setting).queries();
  double cached = 0, lacking = 0;  // tokens of all sequences, and those that would fill their last pages
  for (const Requests& r : requests) {
    const std::int64_t context = setting.context_of(r, tokens), page = run.framework.page;
    cached += r.sequences * static_cast<double>(context);
    if (page > 0) lacking += r.sequences * static_cast<double>((page - context % page) % page);
  }
  std::vector<policy::MemoryItem> items = {
      {graph::Pool::kHbm, graph::Owner::kWeights, model.gpu_weight_bytes()},
      {graph::Pool::kHbm, graph::Owner::kActivations, setting.temporaries * activation_bytes(model, rows, rows)}};
  if (const double bytes = model.host_weight_bytes(); bytes > 0)
    items.push_back({graph::Pool::kDram, graph::Owner::kWeights, bytes, true});
  if (run.framework.quadratic_mask) {
    // One byte per pair of positions up to the bound of the sequence (gpt-fast's causal mask).
    const auto bound = static_cast<double>(setting.lengths.bound());
    items.push_back({graph::Pool::kHbm, graph::Owner::kCausalMask, bound * bound});
  }
  if (run.framework.unpack_operators > 0 && model.cache != config::Precision::kBf16) {
    const config::Model plain = config::with_plain_cache(model);
    items.push_back({graph::Pool::kHbm, graph::Owner::kUnpackedLayer, cached * plain.kv_bytes_per_token_layer()});
  } else if (model.cache.turboquant) {  // the buffer in which chunks of one prompt find those before them
    const double bytes = config::with_plain_cache(model).kv_bytes_per_token_layer();
    items.push_back(
        {graph::Pool::kHbm, graph::Owner::kUnpackedLayer, static_cast<double>(setting.lengths.bound()) * bytes});
  }
  if (run.framework.page > 0)
    items.push_back({graph::Pool::kHbm, graph::Owner::kPartFilledPages, lacking * model.kv_bytes_per_token()});
  if (model.sliding_window > 0) items.push_back(sliding_cache(setting, tokens));
  if (model.state_bytes() > 0) items.push_back(state_memory(setting));
  const bool served = run.speculation && run.speculation->kind == config::Speculation::Kind::kMtp;
  for (policy::MemoryItem& item : draft_memory(setting, tokens, served)) items.push_back(std::move(item));
  model = config::attending(model);
  model.layers = model.full_layers() + (served ? 1 : 0);
  double unused = 0;
  for (const config::Model& part : config::by_cache(model))
    unused += cached * part.layers * part.kv_bytes_per_token_layer();
  for (const Requests& r : requests) {
    for (const policy::MemoryItem& item :
         policy_memory(r, model, setting.context_of(r, tokens), &r == &requests.back())) {
      if (item.pool == graph::Pool::kHbm && item.owner == graph::Owner::kKvCache) unused -= item.bytes;
      items.push_back(item);
    }
  }
  if (run.framework.reserve_full_cache && unused > 0)
    items.push_back({graph::Pool::kHbm, graph::Owner::kReservedCache, unused});
  return items;
}

DecodeWindow::DecodeWindow(const DecodeSetting& setting, std::int64_t context, int steps)
    : DecodeWindow(setting, {context, steps, 0,
                             std::max(context, std::min(context + steps - 1, setting.lengths.bound())), true}) {}

DecodeWindow::DecodeWindow(const DecodeSetting& setting, const SampledSteps& sampled)
    : setting_(setting), requests_(setting.by_length(setting.step_batch())), sampled_(sampled) {}

void DecodeWindow::take_memory(LoweredBlock& block) {
  const OpId held = block.join(Lane::kHost, {});
  for (const policy::MemoryItem& item : decode_memory(setting_, sampled_.held)) {
    block.memory(held, item.pool, item.owner, item.bytes);
  }
}

bool DecodeWindow::next_block(std::vector<graph::Op>& out) {
  out.clear();
  if (step_ == sampled_.steps) return false;
  LoweredBlock block(setting_.run->framework, next_id_, step_ends_.empty() ? -1 : step_ends_.back(), events_, out);
  if (step_ == 0) take_memory(block);
  PassSequences pass;
  for (const Requests& r : requests_) {
    const policy::Sequence sequence{setting_.context_of(r, tokens()), r.lengths};
    pass.decodes.insert(pass.decodes.end(), r.sequences, sequence);
  }
  pass.per_query_head = setting_.per_query_head;
  pass.plans_attention = attends_to_more();
  pass.counts = [&](int layer) -> std::span<const policy::HeadCounts> {
    scratch_.clear();
    std::span<const policy::Sequence> left = pass.decodes;
    for (const Requests& r : requests_) {
      const auto count = static_cast<std::size_t>(r.sequences);
      grow_counts(*r.policy, left.first(count), r.counts(layer, sampled_.first_draw + step_), r.counted_tokens,
                  scratch_);
      left = left.subspan(count);
    }
    return scratch_;
  };
  PromptMemory none;
  step_ends_.push_back(add_pass(block, setting_.pass(setting_), pass, none, -1));
  KVCAST_CHECK(step_ends_.back() == block.last());
  next_id_ = block.next();
  ++step_;
  return true;
}

bool DecodeWindow::attends_to_more() const {
  const config::Model& model = setting_.rank;
  const bool slides = model.layers_with(config::Mixer::kSliding) > 0;
  return std::ranges::any_of(requests_, [&](const Requests& r) {
    const policy::Growth growth = r.policy->growth(r.lengths);
    const std::int64_t context = setting_.context_of(r, tokens());
    return (model.full_layers() > 0 && (growth.grows() || context <= growth.fill)) ||
           (slides && (model.chunked || context <= model.sliding_window));
  });
}

}  // namespace kvcast::lower
