// Records a layer's ops as a plain list: a policy's work without a framework.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/traffic.hpp"
#include "policy/layer_ops.hpp"

namespace kvcast::policy {

class Recorder final : public LayerOps {
 public:
  // Starts with one marker on the compute stream, which ready() returns.
  Recorder() { add(Kind::kMarker, Lane::kCompute, "ready", graph::Marker{}, {}); }

  OpId ready() const override { return ready_; }
  OpId kernel(Lane lane, Kind kind, const char* label, const graph::Work& work, After after) override;
  OpId host(Lane thread, Kind kind, const char* label, HostCall call, double count, After after) override;
  OpId copy(Lane lane, const char* label, const Copy& copy, After after) override;
  OpId cpu(const char* label, const CpuWork& work, After after) override;
  OpId join(Lane lane, After after) override;
  OpId attention(const DecodeAttention& work, After after) override;
  void note(std::string_view event, OpId op) override { noted_[std::string(event)] = op; }
  OpId noted(std::string_view event) const override;
  void done(OpId op) override;

  // Starts a further step of the same layer: adds a new ready marker and keeps the events noted so far.
  void next_step();

  const std::vector<graph::Op>& ops() const { return ops_; }
  OpId done_op() const { return done_; }
  graph::ByteCounts traffic() const;

 private:
  OpId add(Kind kind, Lane lane, const char* label, const graph::Work& work, After after);
  std::vector<graph::Op> ops_;
  std::map<std::string, OpId> noted_;
  OpId ready_ = 0, done_ = -1;
};

}  // namespace kvcast::policy
