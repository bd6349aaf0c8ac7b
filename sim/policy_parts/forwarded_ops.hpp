// Forwards a policy's work to another LayerOps, for policies that change part of the work of a nested policy.
#pragma once

#include "policy/layer_ops.hpp"

namespace kvcast::policy {

class ForwardedOps : public LayerOps {
 public:
  explicit ForwardedOps(LayerOps& ops) : ops_(ops) {}
  graph::OpId ready() const override { return ops_.ready(); }
  graph::OpId ready_before() const override { return ops_.ready_before(); }
  graph::OpId kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work,
                     After after) override {
    return ops_.kernel(lane, kind, label, work, after);
  }
  graph::OpId host(graph::Lane thread, graph::Kind kind, const char* label, graph::HostCall call, double count,
                   After after) override {
    return ops_.host(thread, kind, label, call, count, after);
  }
  graph::OpId copy(graph::Lane lane, const char* label, const graph::Copy& copy, After after) override {
    return ops_.copy(lane, label, copy, after);
  }
  graph::OpId cpu(const char* label, const graph::CpuWork& work, After after) override {
    return ops_.cpu(label, work, after);
  }
  graph::OpId join(graph::Lane lane, After after) override { return ops_.join(lane, after); }
  graph::OpId attention(const graph::DecodeAttention& work, After after) override {
    return ops_.attention(work, after);
  }
  void note(std::string_view event, graph::OpId op) override { ops_.note(event, op); }
  graph::OpId noted(std::string_view event) const override { return ops_.noted(event); }
  void done(graph::OpId op) override { ops_.done(op); }

 private:
  LayerOps& ops_;
};

}  // namespace kvcast::policy
