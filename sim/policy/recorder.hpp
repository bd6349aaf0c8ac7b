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
  Recorder() { add(graph::Kind::kMarker, graph::Lane::kCompute, "ready", graph::Marker{}, {}); }

  graph::OpId ready() const override { return ready_; }
  graph::OpId kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work,
                     After after) override;
  graph::OpId host(graph::Lane thread, graph::Kind kind, const char* label, graph::HostCall call, double count,
                   After after) override;
  graph::OpId copy(graph::Lane lane, const char* label, const graph::Copy& copy, After after) override;
  graph::OpId cpu(const char* label, const graph::CpuWork& work, After after) override;
  graph::OpId join(graph::Lane lane, After after) override;
  graph::OpId attention(const graph::DecodeAttention& work, After after) override;
  void note(std::string_view event, graph::OpId op) override { noted_[std::string(event)] = op; }
  graph::OpId noted(std::string_view event) const override;
  void done(graph::OpId op) override;

  // Starts a further step of the same layer: adds a new ready marker and keeps the events noted so far.
  void next_step();

  const std::vector<graph::Op>& ops() const { return ops_; }
  graph::OpId done_op() const { return done_; }
  graph::Traffic traffic() const;

 private:
  graph::OpId add(graph::Kind kind, graph::Lane lane, const char* label, const graph::Work& work, After after);
  std::vector<graph::Op> ops_;
  std::map<std::string, graph::OpId> noted_;
  graph::OpId ready_ = 0, done_ = -1;
};

}  // namespace kvcast::policy
