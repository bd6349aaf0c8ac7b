// Builds one block of ops: kernels with the host's side of their launch, as the framework launches them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/run.hpp"
#include "graph/op.hpp"
#include "policy/layer_ops.hpp"

namespace kvcast::lower {

inline constexpr double kHalfBytes = 2, kSingleBytes = 4;  // bytes of a number in half and in single precision

// Names of memory owners, by the number that memory deltas carry.
class Owners {
 public:
  std::uint16_t id(const std::string& name);
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// Ops that later blocks wait for, by event and layer. Policies name a handful of events, so a scan finds one fastest.
class Events {
 public:
  void note(std::string_view event, int layer, graph::OpId op);
  bool empty() const { return events_.empty(); }
  // The op noted last; −1: none.
  graph::OpId noted(std::string_view event, int layer) const;

 private:
  struct Event {
    std::string name;
    std::vector<graph::OpId> by_layer;  // from layer −1 on
  };
  std::vector<Event> events_;
};

// Appends ops to a block and numbers them. Knows how kernels get launched:
//   cuda_graph: one graph launch a stretch of kernels; a stretch ends where the host waits for the device;
//   compiled:   one launch a kernel, the host runs ahead of the device;
//   eager:      one framework operator a kernel, and a layer's own overhead.
// Kernels of the side streams are launched by the thread that serves them (recall, backup), one by one.
class Block final : public policy::LayerOps {
 public:
  // first: id of the block's first op; gate: the op that the whole block waits for, −1 in the first block.
  Block(const config::Framework& framework, graph::OpId first, graph::OpId gate, Events& events,
        std::vector<graph::Op>& out);

  // The layer that ops belong to from now on, and the op its policy starts from.
  void enter_layer(int layer);
  void set_ready(graph::OpId op) {
    ready_before_ = ready_ < 0 ? op : ready_;
    ready_ = op;
  }
  graph::OpId taken_done();  // what the policy declared done; aborts if it did not

  graph::OpId ready() const override { return ready_; }
  graph::OpId ready_before() const override { return ready_before_; }
  graph::OpId kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work,
                     After after) override;
  graph::OpId host(graph::Lane thread, graph::Kind kind, const char* label, graph::HostCall call, double count,
                   After after) override;
  graph::OpId copy(graph::Lane lane, const char* label, const graph::Copy& copy, After after) override;
  graph::OpId cpu(const char* label, const graph::CpuWork& work, After after) override;
  graph::OpId join(graph::Lane lane, After after) override;
  graph::OpId attention(const graph::DecodeAttention& work, After after) override;
  void note(std::string_view event, graph::OpId op) override;
  graph::OpId noted(std::string_view event) const override;
  void done(graph::OpId op) override { done_ = op; }

  // What the engine does on the host behind the op that ends a step of so many sequences; the last op.
  graph::OpId between_steps(double sequences, graph::OpId after);
  // Memory that the op takes when it starts (bytes > 0) or returns when it finishes (bytes < 0).
  void memory(graph::OpId op, graph::Pool pool, std::uint16_t owner, double bytes);
  // A marker on the backup thread's lane after ops first .. last of this block and `also`: waits without holding up
  // others.
  graph::OpId join_all(graph::OpId first, graph::OpId last, graph::OpId also);
  // Whether the framework runs operators that others fuse one by one.
  bool unfused() const { return framework_.unfused; }
  // Whether every kernel is launched by a Python operator.
  bool eager() const { return framework_.launch == config::Framework::Launch::kEager; }
  // Whether attention multiplies the FP8 numbers of a cache as they are, with queries rounded to FP8, on GPUs that can.
  // FlashAttention-2 and kernels of its generation (FlashInfer's decode kernels) make 16-bit numbers of them anywhere.
  bool multiplies_fp8() const { return framework_.attention_kernels == config::Framework::AttentionKernels::kNative; }
  graph::OpId last() const { return next_ - 1; }
  graph::OpId next() const { return next_; }

 private:
  graph::OpId add(graph::Kind kind, graph::Lane lane, const char* label, const graph::Work& work, After after);
  // inside: launched by an operator that has launched one before.
  graph::OpId one_kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work, After after,
                         bool inside = false);
  graph::OpId selected_by_torch(graph::Kind kind, const char* label, const graph::TopK& work, graph::OpId after);
  // One kernel, however it reads KV heads.
  graph::OpId fused_attention(const graph::DecodeAttention& work, After after);
  // The host op that launches a kernel on this lane; −1 where the launch in progress covers it.
  graph::OpId launch(graph::Lane lane, bool inside);

  const config::Framework& framework_;
  graph::OpId first_, next_, gate_;
  Events& events_;
  std::vector<graph::Op>& out_;
  int layer_ = -1;
  graph::OpId ready_ = -1, ready_before_ = -1, done_ = -1;
  graph::OpId graph_launch_ = -1;  // of the stretch of kernels in progress
  bool lane_used_[graph::kLaneCount] = {};
};

}  // namespace kvcast::lower
