// Bases of policies that hand requests over to other policies.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "policy/policy.hpp"

namespace kvcast::policy {

// Asks the policy of a request for all that depends on the request.
class ForwardedPolicy : public Policy {
 public:
  void check(const Lengths& request) const override { of(request).check(request); }
  bool covers(const Lengths& request) const override { return of(request).covers(request); }
  bool surveys(const Lengths& request) const override { return of(request).surveys(request); }
  void survey(std::span<const LayerInput* const> layers, const Lengths& request) override {
    of(request).survey(layers, request);
  }
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return of(request).selector(layer, request);
  }
  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    return of(request).prompt_blocks(model, layer, request);
  }
  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    of(shape.request()).prefill_layer(shape, ops);
  }
  // All sequences must have the same policy.
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    of(shape.sequences.front().request).decode_layer(shape, ops);
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override { return of(shape.lengths).memory(shape); }
  Growth growth(const Lengths& request) const override { return of(request).growth(request); }

 protected:
  virtual Policy& of(const Lengths& request) const = 0;
};

// Changes some of what an inner policy does.
class WrappedPolicy : public ForwardedPolicy {
 public:
  explicit WrappedPolicy(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}

  int dense_layers() const override { return inner_->dense_layers(); }
  double recalling_share(const config::Model& model) const override { return inner_->recalling_share(model); }
  PromptAttention prompt_attention(const LayerInput& layer) const override { return inner_->prompt_attention(layer); }
  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    return inner_->prefill_attention(chunk, ops);
  }

 protected:
  Policy& of(const Lengths&) const override { return *inner_; }
  const std::unique_ptr<Policy> inner_;
};

}  // namespace kvcast::policy
