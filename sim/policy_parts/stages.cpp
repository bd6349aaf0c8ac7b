#include "policy_parts/stages.hpp"

#include "base/error.hpp"
#include "policy/costs.hpp"

namespace kvcast::policy {

void Retrieval::build_cost(const PrefillLayer&, std::int64_t, LayerOps&) const {}

std::vector<MemoryItem> Retrieval::memory(const MemoryShape&, std::int64_t) const { return {}; }

namespace {

class KeepAll final : public Retention {
 public:
  std::vector<std::vector<std::int32_t>> keep(const LayerInput&, const Lengths&) const override { return {}; }
  bool keeps_all() const override { return true; }
  std::int64_t kept(const Lengths& request) const override { return request.prompt_tokens; }
  void prefill_cost(const PrefillLayer&, LayerOps&) const override {}
};

class ReadAllHead final : public HeadRetrieval {
 public:
  explicit ReadAllHead(const TokenList& tokens) : tokens_(tokens) {}
  void step(int t, std::span<HeadSelection> out) override { tokens_.append_all(t, out[0].attended); }

 private:
  TokenList tokens_;
};

class ReadAll final : public Retrieval {
 public:
  bool reads_all() const override { return true; }
  std::unique_ptr<HeadRetrieval> begin(const LayerInput&, int, const TokenList& tokens, const Lengths&) const override {
    return std::make_unique<ReadAllHead>(tokens);
  }
  // Caches are compacted after eviction, so that rows are contiguous.
  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    ops.done(ops.attention(attention_over(shape, 0), {ops.ready()}));
  }
  Growth growth(const Lengths&) const override { return {.attended = 1}; }
};

// Selects with one HeadRetrieval for each list of tokens: one per KV head or per query head.
class StageSelector final : public Selector {
 public:
  StageSelector(const Retention& first, const Retrieval& second, const LayerInput& layer, const Lengths& request)
      : info_(layer.info()), frees_(first.frees()), kept_(first.keep(layer, request)) {
    const bool by_query = first.per_query_head();
    KVCAST_CHECK(!(by_query && second.per_query_head()));
    per_query_head_ = by_query || second.per_query_head();
    width_ = second.per_query_head() ? info_.group() : 1;
    const int lists = by_query ? info_.n_q_heads : info_.n_kv_heads;
    KVCAST_CHECK(kept_.empty() || kept_.size() == static_cast<std::size_t>(lists));
    for (int i = 0; i < lists; ++i) {
      heads_.push_back(second.begin(layer, by_query ? i / info_.group() : i, tokens(i), request));
    }
  }

  void prefill(LayerSelection& resident) override {
    resident.reset(heads_.size() * width_, per_query_head_);
    for (std::size_t i = 0; i < resident.heads.size(); ++i) {
      std::vector<std::int32_t>& held = resident.heads[i].attended;
      if (kept_.empty() || !frees_) {
        append_range(0, info_.prompt_tokens, held);
      } else {
        held = kept_[i / width_];
      }
    }
  }

  void step(int t, LayerSelection& out) override {
    out.reset(heads_.size() * width_, per_query_head_);
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      heads_[i]->step(t, std::span(out.heads).subspan(i * width_, width_));
    }
  }

  std::span<const float> output(int q_head) const override {
    const int lists = static_cast<int>(heads_.size()), each = info_.n_q_heads / lists;
    return heads_[q_head / each]->output(q_head % each);
  }

 private:
  TokenList tokens(std::size_t i) const {
    return kept_.empty() ? TokenList(info_.prompt_tokens) : TokenList(info_.prompt_tokens, kept_[i]);
  }

  const trace::TraceInfo& info_;
  bool frees_, per_query_head_ = false;
  std::size_t width_ = 1;
  std::vector<std::vector<std::int32_t>> kept_;
  std::vector<std::unique_ptr<HeadRetrieval>> heads_;
};

class TwoStages final : public Policy {
 public:
  TwoStages(std::unique_ptr<Retention> first, std::unique_ptr<Retrieval> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  void check(const Lengths& request) const override {
    first_->check(request);
    second_->check(request);
  }

  bool surveys(const Lengths& request) const override { return first_->surveys(request); }
  void survey(std::span<const LayerInput* const> layers, const Lengths& request) override {
    first_->survey(layers, request);
  }

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return std::make_unique<StageSelector>(*first_, *second_, layer, request);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    first_->prefill_cost(shape, ops);
    if (shape.last()) second_->build_cost(shape, first_->kept(shape.request()), ops);
  }

  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    return first_->prompt_blocks(model, layer, request);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override { second_->decode_cost(shape, ops); }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    const std::int64_t kept = first_->kept(shape.lengths);
    const std::int64_t listed = kept + shape.tokens - prompt;
    std::vector<MemoryItem> items;
    const double generated = static_cast<double>(shape.tokens - prompt);
    const double in_list = first_->mean_kept(*shape.model, shape.lengths) + generated;
    const double held =
        kv_bytes(shape, in_list, first_->per_query_head()) * second_->stored_share(*shape.model, in_list);
    if (first_->frees()) {
      items.push_back({graph::Pool::kHbm, graph::Owner::kKvCache, held});
    } else {
      items.push_back({graph::Pool::kHbm, graph::Owner::kKvCache, kv_bytes(shape, static_cast<double>(shape.tokens))});
      if (kept < prompt) items.push_back({graph::Pool::kHbm, graph::Owner::kFilteredCopy, held});
    }
    for (MemoryItem& item : second_->memory(shape, listed)) items.push_back(std::move(item));
    return items;
  }

  Growth growth(const Lengths& request) const override { return second_->growth(request); }

 private:
  std::unique_ptr<Retention> first_;
  std::unique_ptr<Retrieval> second_;
};

}  // namespace

std::unique_ptr<Retention> keep_all() { return std::make_unique<KeepAll>(); }
std::unique_ptr<Retrieval> read_all() { return std::make_unique<ReadAll>(); }

std::unique_ptr<Policy> two_stages(std::unique_ptr<Retention> first, std::unique_ptr<Retrieval> second) {
  return std::make_unique<TwoStages>(std::move(first), std::move(second));
}

}  // namespace kvcast::policy
