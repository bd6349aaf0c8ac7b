#include "lower/pass.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "lower/compressed.hpp"
#include "lower/dense.hpp"
#include "lower/eager.hpp"
#include "lower/verification.hpp"
#include "policy/costs.hpp"
#include "policy/growth.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::Lane;
using graph::OpId;
using graph::Owner;
using graph::Pool;

int PassSequences::sequences() const {
  int all = static_cast<int>(decodes.size());
  for (const PromptPart& part : prompts) all += part.sequences;
  return all;
}

double PassSequences::rows(int queries) const {
  auto all = static_cast<double>(decodes.size()) * queries;
  for (const PromptPart& part : prompts) all += part.rows();
  return all;
}

int PassSequences::sampled(int queries) const {
  int all = static_cast<int>(decodes.size()) * queries;
  for (const PromptPart& part : prompts) all += part.last() ? part.sequences : 0;
  return all;
}

PassSequences pass_of(std::span<const PassSequence> sequences, const policy::Policy& policy,
                      const config::Model& rank) {
  PassSequences pass;
  for (const PassSequence& s : sequences) {
    if (s.decodes()) {
      KVCAST_CHECK(s.added == 1);
      pass.decodes.push_back({s.cached + 1, s.request});
      continue;
    }
    PromptPart part{.request = s.request, .start = s.cached, .end = s.cached + s.added};
    const auto same = [&](const PromptPart& other) {
      return other.request == part.request && other.start == part.start && other.end == part.end;
    };
    if (const auto at = std::ranges::find_if(pass.prompts, same); at != pass.prompts.end()) {
      ++at->sequences;
      continue;
    }
    const std::int64_t prompt = s.request.prompt_tokens;
    const policy::PromptBlocks blocks = policy.prompt_blocks(rank, 0, s.request);
    const std::int64_t block = blocks.tokens > 0 ? blocks.tokens : prompt;
    part.read = blocks.read;
    part.block = part.start / block * block;
    const std::int64_t block_end = std::min(prompt, part.block + block);
    KVCAST_CHECK(s.added >= 1 && part.end <= block_end);
    part.acts = part.end == block_end;
    pass.prompts.push_back(part);
  }
  return pass;
}

void grow_counts(const policy::Policy& policy, std::span<const policy::Sequence> sequences,
                 std::span<const policy::HeadCounts> counts, std::int64_t counted_tokens,
                 std::vector<policy::HeadCounts>& out) {
  const std::size_t heads = counts.size() / sequences.size();
  std::optional<policy::GrowthBy> growth;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const policy::Sequence& s = sequences[i];
    if (i == 0 || !(s == sequences[i - 1])) growth.emplace(policy.growth(s.request), counted_tokens, s.tokens);
    for (const policy::HeadCounts& head : counts.subspan(i * heads, heads)) {
      out.push_back((*growth)(head));
      // Counts from a longer context are limited to this one.
      out.back().attended = std::min(out.back().attended, s.tokens);
    }
  }
}

namespace {

// The layer of the target whose selection a draft's layer has.
struct LikeLayer {
  const config::Model* model = nullptr;  // its layers that attend
  int layer = 0;
};

class PassLayers {
 public:
  PassLayers(LoweredBlock& block, const PassSetting& setting, const PassSequences& pass, int queries,
             PromptMemory& memory)
      : block_(block),
        s_(setting),
        whole_(setting.rank),
        model_(config::attending(setting.rank)),
        sliding_(config::sliding_layers(model_)),
        plain_(config::with_plain_cache(model_)),
        plain_sliding_(config::with_plain_cache(sliding_)),
        pass_(pass),
        queries_(queries),
        memory_(memory),
        rows_(pass.rows(queries)) {
    for (const PromptPart& part : pass.prompts)
      added_.insert(added_.end(), part.sequences, std::llround(part.read_of(part.end - part.start)));
  }

  // The pass is a draft's: without a policy it attends to all tokens.
  void is_draft(const LikeLayer& like) { draft_ = true, like_ = like; }

  OpId layer(int layer, OpId after) {
    block_.enter_layer(draft_ ? -1 : layer);
    switch (whole_.mixer(layer)) {
      case config::Mixer::kFull:
      case config::Mixer::kSliding:
        return attending_layer(layer, whole_.layers == model_.layers ? layer : attended_layers_++, after);
      case config::Mixer::kRecurrence:
        after = recurrence(block_, whole_, static_cast<double>(pass_.decodes.size()), added_, after, queries_);
        break;
      case config::Mixer::kNone:
        break;
    }
    return after_mixer(block_, whole_, layer, rows_, after);
  }

 private:
  // layer: of the layers that attend, which are all that the policy knows.
  OpId attending_layer(int of_model, int layer, OpId after) {
    double expanded = 0;
    if (!pass_.prompts.empty()) {
      after = block_.join(Lane::kCompute, {after});
      for (const PromptPart& part : pass_.prompts) {
        if (!draft_) memory_.begins(block_, layer, after, part);
        if (model_.latent) expanded += part.sequences * (held(layer, part) + part.read_of(part.end - part.start));
      }
    }
    const OpId ready = before_attention(block_, shape(layer), layer, rows_, after, expanded);
    OpId attended = -1;
    if (!pass_.decodes.empty()) attended = decode(layer, ready);
    // One kernel attends to all prompts, before the policy acts on any.
    std::vector<OpId> read;
    for (const PromptPart& part : pass_.prompts) read.push_back(attend_prompt(layer, part, ready));
    for (std::size_t i = 0; i < read.size(); ++i) {
      act(layer, pass_.prompts[i], read[i]);
      if (i == 0 || read[i] != read[i - 1]) attended = both(attended, read[i]);
    }
    ready_before_ = ready;
    const bool from_latent = pass_.prompts.empty() && !model_.slides(layer);
    return after_attention(block_, model_.slides(layer) ? sliding_ : whole_, of_model, rows_, attended, from_latent);
  }

  OpId both(OpId a, OpId b) { return a < 0 ? b : block_.join(Lane::kCompute, {a, b}); }

  double held(int layer, const PromptPart& part) const {
    if (draft_ || model_.slides(layer)) return part.read_of(part.start);
    return s_.policy->prompt_blocks(model_, layer, part.request).held_at(part.start);
  }

  OpId attend_prompt(int layer, const PromptPart& part, OpId ready) {
    // TurboQuant's prompts attend to 16-bit numbers, those of chunks before unpacked.
    const bool packed = model_.cache.turboquant && !model_.plain(layer);
    const config::Model& model = packed ? shape_in_16_bits(layer) : shape(layer);
    policy::PrefillChunk chunk{&model,
                               layer,
                               part.sequences,
                               std::llround(part.read_of(part.start)),
                               std::llround(part.read_of(part.end)),
                               held(layer, part),
                               1};
    if (model_.compressed) return compressed_prompt(block_, model_, chunk, ready);
    if (model_.slides(layer)) {
      chunk.held = std::min(chunk.held, static_cast<double>(model_.in_window(part.start + 1) - 1));
      chunk.density = std::min(1.0, pairs_in_windows(part) / chunk.pairs());
      return block_.compute(Kind::kAttention, "sliding-window attention", policy::causal_attention(chunk), {ready});
    }
    if (s_.prompt_density) chunk.density = s_.prompt_density(layer);
    if (packed && chunk.held > 0) ready = flatten(chunk, chunk.held, ready);
    if (s_.framework->flatten_prompt && model.cache != config::Precision::kBf16)
      ready = flatten(chunk, chunk.held + chunk.length(), ready);
    block_.set_ready(ready);
    if (s_.framework->eager_attention) return attend_eagerly(chunk, ready);
    if (s_.policy != nullptr) return s_.policy->prefill_attention(chunk, block_);
    return block_.kernel(Lane::kCompute, Kind::kAttention, "prefill attention", policy::causal_attention(chunk),
                         {ready});
  }

  const config::Model& shape(int layer) const {
    if (model_.plain(layer)) return shape_in_16_bits(layer);
    return model_.slides(layer) ? sliding_ : model_;
  }
  const config::Model& shape_in_16_bits(int layer) const { return model_.slides(layer) ? plain_sliding_ : plain_; }

  // Query-key pairs of the part in a sliding layer; in chunks those of each one.
  double pairs_in_windows(const PromptPart& part) const {
    const auto window = static_cast<double>(model_.sliding_window);
    const auto capped = [&](std::int64_t n) { return policy::capped_pairs(part.read_of(n), window); };
    if (!model_.chunked) return capped(part.end) - capped(part.start);
    const auto up_to = [&](std::int64_t tokens) {
      const auto whole = static_cast<double>(tokens / model_.sliding_window);
      const auto rest = static_cast<double>(tokens % model_.sliding_window);
      return whole * window * (window + 1) / 2 + rest * (rest + 1) / 2;
    };
    return up_to(part.end) - up_to(part.start);
  }

  // The policy's work on a layer after the part.
  void act(int layer, const PromptPart& part, OpId attention) {
    if (draft_ || !part.acts || model_.slides(layer)) return;
    block_.set_ready(attention);
    const OpId before = block_.last();
    s_.policy->prefill_layer({&shape(layer), layer, part.sequences, part.request.prompt_tokens, part.block, part.end,
                              part.request.decode_steps},
                             block_);
    memory_.settles(block_, layer, before, attention, part);
  }

  // Unpacks the cache of so many tokens to 16-bit numbers, and rotates keys back.
  OpId flatten(const policy::PrefillChunk& chunk, double tokens, OpId ready) {
    tokens *= chunk.batch;
    const graph::Kernel work{graph::KernelClass::kConvert, tokens * model_.kv_bytes_per_token_layer(),
                             tokens * plain_.kv_bytes_per_token_layer()};
    ready = block_.compute(Kind::kAttention, "flatten cache", work, {ready});
    return model_.cache.rotated() ? rotate(block_, "rotate keys back", model_, tokens * model_.n_kv_heads, ready)
                                  : ready;
  }

  OpId attend_eagerly(const policy::PrefillChunk& chunk, OpId ready) {
    const double rows = chunk.length() * chunk.batch, seen = chunk.held + chunk.length();
    EagerAttention work;
    work.scores = rows * seen * model_.n_q_heads;
    work.kv_bytes = seen * chunk.batch * model_.kv_bytes_per_token_layer();
    work.q_bytes = rows * model_.n_q_heads * model_.head_dim * config::Model::kElementBytes;
    work.group = model_.group();
    work.head_dim = model_.head_dim;
    const OpId begin = block_.join(Lane::kCompute, {ready});
    const double bytes = s_.temporaries * eager_score_bytes(work);
    block_.memory(begin, Pool::kHbm, Owner::kAttentionScores, bytes);
    const OpId attended = eager_attention(block_, work, begin);
    block_.memory(attended, Pool::kHbm, Owner::kAttentionScores, -bytes);
    return attended;
  }

  OpId decode(int layer, OpId ready) {
    if (ready_before_ >= 0) block_.set_ready(ready_before_);  // prompts have set others since
    block_.set_ready(ready);
    const bool packed = s_.speculation == nullptr || s_.speculation->packed;
    if (model_.compressed) return compressed_steps(block_, model_, layer, {pass_.decodes, queries_, packed}, ready);
    if (model_.slides(layer) || s_.policy == nullptr) {
      const config::Model& own = shape(layer);
      seen_.clear();
      for (const policy::Sequence& s : pass_.decodes) {
        seen_.resize(seen_.size() + own.n_kv_heads,
                     {.attended = model_.slides(layer) ? model_.in_window(s.tokens) : s.tokens});
      }
      const policy::DecodeLayer shape(own, layer, pass_.decodes, seen_, false);
      Verification ops(block_, queries_, false, packed);
      return ops.attention(policy::attention_over(shape, 0), {block_.ready()});
    }
    const config::Model& model = like_.model != nullptr ? *like_.model : shape(layer);
    if (model.cache.rotated())
      block_.set_ready(rotate(block_, "rotate queries", model, rows_of_decodes() * model.n_q_heads, ready));
    const int of_policy = like_.model != nullptr ? like_.layer : layer;
    std::span<const policy::HeadCounts> counts = pass_.counts(of_policy);
    std::span<const policy::Sequence> sequences = pass_.decodes;
    if (queries_ > 1 && s_.policy->selects()) {
      repeat_for_queries(counts, counts.size() / sequences.size(), queries_, seen_);
      repeat_for_queries(sequences, 1, queries_, asking_);
      counts = seen_, sequences = asking_;
    }
    Verification ops(block_, queries_, s_.policy->selects(), packed);
    s_.policy->decode_layer({model, of_policy, sequences, counts, pass_.per_query_head}, ops);
    const OpId attended = block_.taken_done();
    if (!s_.framework->layer_sync) return attended;
    return block_.host(Lane::kHost, Kind::kSync, "scalar of the layer", graph::HostCall::kItemSync, 1, {attended});
  }

  double rows_of_decodes() const { return static_cast<double>(pass_.decodes.size()) * queries_; }

  LoweredBlock& block_;
  const PassSetting& s_;
  const config::Model& whole_;
  const config::Model model_;          // the layers that attend
  const config::Model sliding_;        // the same with the heads of sliding ones
  const config::Model plain_;          // the layers that attend with a cache of 16 bits
  const config::Model plain_sliding_;  // the same with the heads of sliding ones
  const PassSequences& pass_;
  int queries_;
  PromptMemory& memory_;
  double rows_;
  std::vector<std::int64_t> added_;  // tokens that each prompt grows by
  int attended_layers_ = 0;          // so far
  OpId ready_before_ = -1;
  std::vector<policy::HeadCounts> seen_;
  std::vector<policy::Sequence> asking_;  // one for each query
  bool draft_ = false;
  LikeLayer like_;
};

int last_full_layer(const config::Model& attending) {
  int layer = attending.layers - 1;
  while (attending.slides(layer)) --layer;
  return layer;
}

// A layer's input: features of the model, which EAGLE joins once, and the embedding of the token before.
OpId draft_input(LoweredBlock& block, const config::Speculation& s, const config::Model& draft, double rows, bool first,
                 OpId after) {
  const double hidden = draft.hidden;
  const auto project = [&](const char* label, double n, double k) {
    after = block.kernel(Lane::kCompute, Kind::kGemm, label, graph::Gemm{rows, n, k, kHalfBytes}, {after});
  };
  if (s.kind == config::Speculation::Kind::kMtp) {
    project("features and embedding", hidden, s.features * hidden);
  } else {
    if (first) project("features", hidden, s.features * hidden);
    project("qkv of the embedding", (draft.n_q_heads + 2.0 * draft.n_kv_heads) * draft.head_dim, hidden);
  }
  return after;
}

// The draft's passes, each of one token further. The first reads what the last verification left: as many rows as it
// had, since the number of accepted ones differs between sequences.
OpId add_drafts(LoweredBlock& block, const PassSetting& setting, const PassSequences& pass, OpId after) {
  const config::Speculation& s = *setting.speculation;
  if (!s.draft) return after;
  PassSetting own{.framework = setting.framework, .rank = setting.draft, .speculation = setting.speculation};
  const config::Model attending = config::attending(setting.rank);
  LikeLayer like;
  if (s.kind == config::Speculation::Kind::kMtp) {
    own.policy = setting.policy, like = {&attending, last_full_layer(attending)};
  }
  PromptMemory none;
  for (int i = 0; i < s.tokens; ++i) {
    PassSequences drafted;
    drafted.decodes = pass.decodes, drafted.counts = pass.counts, drafted.per_query_head = pass.per_query_head;
    for (policy::Sequence& sequence : drafted.decodes) sequence.tokens += i;
    if (i == 0) drafted.prompts = pass.prompts;
    const int queries = i == 0 ? s.verified() : 1;
    const double rows = drafted.rows(queries);
    if (rows == 0) break;
    block.enter_layer(-1);
    if (s.one_layer()) after = draft_input(block, s, own.rank, rows, i == 0, after);
    PassLayers layers(block, own, drafted, queries, none);
    layers.is_draft(like);
    for (int layer = 0; layer < own.rank.layers; ++layer) after = layers.layer(layer, after);
    config::Model head = own.rank;
    if (s.head > 0) head.vocab = (s.head + head.ranks - 1) / head.ranks;
    if (!drafted.decodes.empty())
      after = choose_tokens(block, head, static_cast<double>(drafted.decodes.size()), after);
  }
  return after;
}

// The host looks for the last tokens in the whole sequence.
OpId find_ngrams(LoweredBlock& block, const PassSequences& pass, OpId after) {
  constexpr double kTokenBytes = 4;
  double tokens = 0;
  for (const policy::Sequence& sequence : pass.decodes) tokens += static_cast<double>(sequence.tokens);
  const auto sequences = static_cast<double>(pass.decodes.size());
  const graph::CpuWork work{.items = sequences, .bytes_per_item = kTokenBytes * tokens / sequences};
  return block.join(Lane::kHost, {block.cpu("find n-grams", work, {after})});
}

}  // namespace

OpId add_pass(LoweredBlock& block, const PassSetting& setting, const PassSequences& pass, PromptMemory& memory,
              OpId after) {
  const config::Model& model = setting.rank;
  const int queries = setting.queries();
  const double rows = pass.rows(queries);
  if (!pass.decodes.empty() && !pass.prompts.empty()) block.set_beside_prompts();
  OpId op = enter_layers(block, model, rows, after);
  // One plan serves all layers, because their attention has the same shape.
  if (pass.plans_attention) block.plan_attention();
  if (setting.speculation != nullptr) op = add_drafts(block, setting, pass, op);
  PassLayers layers(block, setting, pass, queries, memory);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (layer > 0 && layer % setting.stage_layers() == 0) op = hand_over(block, model, rows, op);
    op = layers.layer(layer, op);
  }
  if (!pass.prompts.empty())
    op = memory.after_layers(block, rows - static_cast<double>(pass.decodes.size()) * queries, op);
  const bool selects = !pass.decodes.empty() && !setting.policy->uncompressed();
  if (const int sampled = pass.sampled(queries); sampled > 0) {
    op = head_and_sample(block, model, sampled, op);
    const bool ngrams = setting.speculation != nullptr && !setting.speculation->draft && !pass.decodes.empty();
    return block.between_steps(pass.sequences(), selects, ngrams ? find_ngrams(block, pass, op) : op);
  }
  block.enter_layer(-1);
  op = block.host(Lane::kHost, Kind::kSync, "chunk done", graph::HostCall::kStreamSync, 1, {op});
  return block.between_steps(pass.sequences(), selects, op);
}

}  // namespace kvcast::lower
