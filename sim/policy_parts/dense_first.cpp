// Most released code leaves the first one or two layers uncompressed, because their attention is too widely spread.
#include <algorithm>

#include "base/error.hpp"
#include "policy_parts/forwarded_policy.hpp"
#include "policy_parts/pass_parts.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {
namespace {

class DenseFirst final : public WrappedPolicy {
 public:
  DenseFirst(int layers, std::unique_ptr<Policy> inner)
      : WrappedPolicy(std::move(inner)), layers_(layers), full_(two_stages(keep_all(), read_all())) {}

  void survey(std::span<const LayerInput* const> layers, const Lengths& request) override {
    std::vector<const LayerInput*> others;
    for (const LayerInput* layer : layers) {
      if (layer->layer().id() >= layers_) others.push_back(layer);
    }
    inner_->survey(others, request);
  }

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return (layer.layer().id() < layers_ ? *full_ : *inner_).selector(layer, request);
  }

  int dense_layers() const override { return layers_; }

  PromptAttention prompt_attention(const LayerInput& layer) const override {
    return layer.layer().id() < layers_ ? PromptAttention{} : inner_->prompt_attention(layer);
  }

  // Dense layers keep all that they have read.
  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    PromptBlocks blocks = inner_->prompt_blocks(model, std::max(layer, std::min(layers_, model.layers - 1)), request);
    if (layer < layers_) blocks.whole_share = 1;
    return blocks;
  }

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    return (chunk.layer < layers_ ? *full_ : *inner_).prefill_attention(chunk, ops);
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    (shape.layer < layers_ ? *full_ : *inner_).prefill_layer(shape, ops);
  }

  // Counts are those of the nearest captured layer, which may be a compressed one; a dense layer attends to all tokens.
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    if (shape.layer >= layers_) return inner_->decode_layer(shape, ops);
    const auto all = [](const Sequence& sequence) { return sequence.tokens; };
    full_->decode_layer(OtherCounts(shape, all).shape(), ops);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const int dense = std::min(layers_, shape.model->layers);
    config::Model part = *shape.model;
    MemoryShape of_part = shape;
    of_part.model = &part;
    part.layers = dense;
    std::vector<MemoryItem> items = full_->memory(of_part);
    items.front().owner = graph::Owner::kUncompressedLayers;
    part.layers = shape.model->layers - dense;
    for (MemoryItem& item : inner_->memory(of_part)) items.push_back(std::move(item));
    return items;
  }

 private:
  int layers_;
  std::unique_ptr<Policy> full_;
};

}  // namespace

std::unique_ptr<Policy> dense_first(int layers, std::unique_ptr<Policy> inner) {
  KVCAST_CHECK(layers >= 0);
  return layers == 0 ? std::move(inner) : std::make_unique<DenseFirst>(layers, std::move(inner));
}

}  // namespace kvcast::policy
