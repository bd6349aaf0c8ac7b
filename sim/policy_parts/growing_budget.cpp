#include "policy_parts/growing_budget.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

namespace kvcast::policy {
namespace {

class GrowingBudget final : public Policy {
 public:
  GrowingBudget(std::int64_t budget, bool on_cpu, std::function<std::unique_ptr<Policy>(std::int64_t)> at)
      : budget_(budget), on_cpu_(on_cpu), at_(std::move(at)) {}

  void check(const Lengths& request) const override {
    at(request.prompt_tokens, request).check(request);
    at(request.bound(), request).check(request);
  }
  bool covers(const Lengths& request) const override { return at(request.bound(), request).covers(request); }

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override;

  PromptAttention prompt_attention(const LayerInput& layer) const override {
    const trace::TraceInfo& info = layer.info();
    return at(info.prompt_tokens, {info.prompt_tokens, info.decode_steps}).prompt_attention(layer);
  }
  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    return at(request.prompt_tokens, request).prompt_blocks(model, layer, request);
  }
  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    return of(budget_).prefill_attention(chunk, ops);
  }
  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    at(shape.prompt_tokens, shape.request()).prefill_layer(shape, ops);
  }
  // Sequences of different budgets are served by one between them; what they read is in their counts.
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const double mean = shape.mean_over([this](const Sequence& s) { return budget_at(s.tokens, s.request); });
    of(std::llround(mean)).decode_layer(shape, ops);
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    return at(shape.tokens, shape.lengths).memory(shape);
  }
  Growth growth(const Lengths& request) const override {
    Growth growth = at(request.prompt_tokens, request).growth(request);
    if (budget_ >= request.prompt_tokens) return growth;
    double& read = on_cpu_ ? growth.cpu_attended : growth.attended;
    read += static_cast<double>(budget_) / static_cast<double>(request.prompt_tokens);
    growth.fill = growth.when_full = 0;
    return growth;
  }

  // The policy of a step with so many tokens, its own included. All steps of a request are covered by their budgets, or
  // none is.
  Policy& at(std::int64_t tokens, const Lengths& request) const { return of(budget_at(tokens, request)); }

 private:
  std::int64_t budget_at(std::int64_t tokens, const Lengths& request) const {
    if (budget_ >= request.prompt_tokens) return std::max(budget_, request.bound());
    return std::min(grown_budget(budget_, request.prompt_tokens, tokens), request.bound() - 1);
  }

  Policy& of(std::int64_t budget) const {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Policy>& policy = made_[budget];
    if (policy == nullptr) policy = at_(budget);
    return *policy;
  }

  const std::int64_t budget_;
  const bool on_cpu_;
  const std::function<std::unique_ptr<Policy>(std::int64_t)> at_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::unique_ptr<Policy>> made_;  // by budget
};

class GrowingSelector final : public Selector {
 public:
  GrowingSelector(const GrowingBudget& policy, const LayerInput& layer, const Lengths& request)
      : policy_(policy), layer_(layer), request_(request) {
    begin(layer.info().prompt_tokens);
  }

  void prefill(LayerSelection& resident) override { inner_->prefill(resident); }

  void step(int t, LayerSelection& out) override {
    if (begin(layer_.info().prompt_tokens + t + 1)) {
      inner_->prefill(out);
      for (int before = 0; before < t; ++before) inner_->step(before, out);
    }
    inner_->step(t, out);
  }

  std::span<const float> output(int q_head) const override { return inner_->output(q_head); }
  std::span<const float> log_weights(int q_head) const override { return inner_->log_weights(q_head); }

 private:
  // Returns whether the budget of so many tokens is another than before.
  bool begin(std::int64_t tokens) {
    const Policy* const policy = &policy_.at(tokens, request_);
    if (policy == now_) return false;
    now_ = policy, inner_ = policy->selector(layer_, request_);
    return true;
  }

  const GrowingBudget& policy_;
  const LayerInput& layer_;
  const Lengths request_;
  const Policy* now_ = nullptr;
  std::unique_ptr<Selector> inner_;
};

std::unique_ptr<Selector> GrowingBudget::selector(const LayerInput& layer, const Lengths& request) const {
  return std::make_unique<GrowingSelector>(*this, layer, request);
}

}  // namespace

std::int64_t grown_budget(std::int64_t budget, std::int64_t prompt, std::int64_t tokens) {
  if (prompt < 1) return budget;
  const double share = static_cast<double>(budget) / static_cast<double>(prompt);
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(tokens)));
}

std::unique_ptr<Policy> growing_budget(std::int64_t budget, bool on_cpu,
                                       std::function<std::unique_ptr<Policy>(std::int64_t)> at) {
  return std::make_unique<GrowingBudget>(budget, on_cpu, std::move(at));
}

}  // namespace kvcast::policy
