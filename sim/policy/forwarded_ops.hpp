// Forwards a policy's work to another LayerOps, for policies that change part of the work of a nested policy.
#pragma once

#include "policy/layer_ops.hpp"

namespace kvcast::policy {

class ForwardedOps : public LayerOps {
 public:
  explicit ForwardedOps(LayerOps& ops) : ops_(ops) {}
  OpId ready() const override { return ops_.ready(); }
  OpId ready_before() const override { return ops_.ready_before(); }
  bool unfused() const override { return ops_.unfused(); }
  OpId kernel(Lane lane, Kind kind, const char* label, const graph::Work& work, After after) override {
    return ops_.kernel(lane, kind, label, work, after);
  }
  OpId host(Lane thread, Kind kind, const char* label, HostCall call, double count, After after) override {
    return ops_.host(thread, kind, label, call, count, after);
  }
  OpId copy(Lane lane, const char* label, const Copy& copy, After after) override {
    return ops_.copy(lane, label, copy, after);
  }
  OpId cpu(const char* label, const CpuWork& work, After after) override { return ops_.cpu(label, work, after); }
  OpId join(Lane lane, After after) override { return ops_.join(lane, after); }
  OpId attention(const DecodeAttention& work, After after) override { return ops_.attention(work, after); }
  void note(std::string_view event, OpId op) override { ops_.note(event, op); }
  OpId noted(std::string_view event) const override { return ops_.noted(event); }
  void done(OpId op) override { ops_.done(op); }

 private:
  LayerOps& ops_;
};

}  // namespace kvcast::policy
