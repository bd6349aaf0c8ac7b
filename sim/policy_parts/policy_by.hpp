// Bases of policies that have a setting, and of selectors whose KV heads select separately.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "policy/fields.hpp"
#include "policy/policy.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {

template <typename Setting>
class PolicyBy : public Policy {
 public:
  explicit PolicyBy(const Setting& setting) : s_(setting) {}

 protected:
  const Setting s_;
};

// A policy whose layers select by LayerSelector(layer, setting).
template <typename LayerSelector, typename Setting>
class SelectsBy : public PolicyBy<Setting> {
 public:
  using PolicyBy<Setting>::PolicyBy;
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return std::make_unique<LayerSelector>(layer, this->s_);
  }
};

// Has a Head(layer, kv_head, setting) for each KV head, with prefill(HeadSelection&).
template <typename Head, typename Setting>
class KvHeads : public Selector {
 public:
  KvHeads(const LayerInput& layer, const Setting& setting) {
    for (int h = 0; h < layer.info().n_kv_heads; ++h) heads_.push_back(std::make_unique<Head>(layer, h, setting));
  }
  void prefill(LayerSelection& resident) override {
    resident.reset(heads_.size(), false);
    for (std::size_t h = 0; h < heads_.size(); ++h) heads_[h]->prefill(resident.heads[h]);
  }

 protected:
  std::vector<std::unique_ptr<Head>> heads_;  // none moves: some refer to their own parts
};

// Heads that select separately, by step(t, HeadSelection&).
template <typename Head, typename Setting>
class EachKvHead : public KvHeads<Head, Setting> {
 public:
  using KvHeads<Head, Setting>::KvHeads;
  void step(int t, LayerSelection& out) override {
    out.reset(this->heads_.size(), false);
    for (std::size_t h = 0; h < this->heads_.size(); ++h) this->heads_[h]->step(t, out.heads[h]);
  }
};

// Declares the parameters of a policy that is made from their values alone.
template <typename Made, typename Setting>
void declare(Descriptor& d, const Fields<Setting>& fields) {
  d.parameters = fields.parameters();
  d.make = [fields](const ParameterValues& values) { return std::make_unique<Made>(fields.read(values)); };
}

}  // namespace kvcast::policy
