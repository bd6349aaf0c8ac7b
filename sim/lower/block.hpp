// Builds one block of ops: kernels, and the host's work to launch them under a framework.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/run.hpp"
#include "graph/op.hpp"
#include "policy/layer_ops.hpp"

namespace kvcast::lower {

inline constexpr double kHalfBytes = 2, kSingleBytes = 4;  // bytes of a number in half and single precision

// Ops that later blocks wait for, by event and layer. Policies name a handful of events, so a linear scan is fastest.
class Events {
 public:
  void note(std::string_view event, int layer, graph::OpId op);
  bool empty() const { return events_.empty(); }
  // Returns the op noted last; −1: none.
  graph::OpId noted(std::string_view event, int layer) const;

 private:
  struct Event {
    std::string name;
    std::vector<graph::OpId> by_layer;  // index 0 is layer −1
  };
  std::vector<Event> events_;
};

// Appends ops to a block and numbers them. Models the launch of kernels:
//   cuda_graph: one graph launch per stretch of kernels; a stretch ends where the host waits for the device;
//   compiled:   one launch per kernel; the host runs ahead of the device;
//   eager:      one framework operator per kernel, and the overhead of each layer.
// Kernels of the side streams are launched one by one, by the thread that serves them (recall, backup).
class LoweredBlock final : public policy::LayerOps {
 public:
  // first: id of the block's first op; gate: the op that the whole block waits for, −1 in the first block.
  LoweredBlock(const config::Framework& framework, graph::OpId first, graph::OpId gate, Events& events,
               std::vector<graph::Op>& out);

  // Set the layer that ops belong to from now on, and the op that its policy starts from.
  void enter_layer(int layer);
  // Adds the framework's planning of an attention kernel, if it plans.
  void plan_attention();
  // States that attention of decode steps shares the pass with chunks of prompts.
  void set_beside_prompts() { beside_prompts_ = true; }
  void set_ready(graph::OpId op) {
    ready_before_ = ready_ < 0 ? op : ready_;
    ready_ = op;
  }
  graph::OpId taken_done();  // the op that the policy declared done; aborts if there is none

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

  // Adds the engine's work on the host after the op that ends a step of this many sequences, and what it does there for
  // a policy. Returns the last op.
  graph::OpId between_steps(double sequences, bool of_policy, graph::OpId after);
  // Adds memory that the op allocates when it starts (bytes > 0) or frees when it finishes (bytes < 0).
  void memory(graph::OpId op, graph::Pool pool, graph::Owner owner, double bytes);
  // Adds a marker on the backup thread's lane after ops first .. last of this block and `also`. It waits without
  // delaying others.
  graph::OpId join_all(graph::OpId first, graph::OpId last, graph::OpId also);
  // Returns whether the framework runs separate operators where others fuse them.
  bool unfused() const override { return framework_.unfused; }
  // Returns whether every kernel is launched by a Python operator.
  const config::Framework& framework() const { return framework_; }
  bool eager() const { return framework_.launch == config::Framework::Launch::kEager; }
  // Returns whether attention multiplies the FP8 numbers of a cache as they are, with queries rounded to FP8, on GPUs
  // that can. FlashAttention-2 and kernels of its generation (FlashInfer's decode kernels) convert them on any GPU.
  bool multiplies_fp8() const { return framework_.attention_kernels == config::Framework::AttentionKernels::kNative; }
  graph::OpId last() const { return next_ - 1; }
  graph::OpId next() const { return next_; }

 private:
  graph::OpId add(graph::Kind kind, graph::Lane lane, const char* label, const graph::Work& work, After after);
  // inside: launched by an operator that has already launched a kernel.
  graph::OpId one_kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work, After after,
                         bool inside = false);
  // Adds the work to the op before if both are attention over prompts in one layer.
  bool joins_last(const char* label, const graph::Work& work);
  // A policy's kernel as the framework writes it: fused, or as a chain of operators.
  graph::OpId as_written(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work, After after);
  graph::OpId selected_by_torch(graph::Kind kind, const char* label, const graph::TopK& work, graph::OpId after);
  // Unpacks the cached pairs of a step to 16-bit numbers, in the operators of the framework.
  graph::OpId unpack(const graph::DecodeAttention& work, After after);
  // Adds attention as one kernel, after copies of keys and values if the framework repeats KV heads.
  graph::OpId fused_attention(const graph::DecodeAttention& work, After after);
  // Adds the host op that launches a kernel on this lane; returns −1 if the launch in progress covers it.
  graph::OpId launch(graph::Lane lane, bool inside);

  const config::Framework& framework_;
  graph::OpId first_, next_, gate_;
  Events& events_;
  std::vector<graph::Op>& out_;
  int layer_ = -1;
  graph::OpId ready_ = -1, ready_before_ = -1, done_ = -1;
  graph::OpId graph_launch_ = -1;  // launch of the stretch of kernels in progress
  bool lane_used_[graph::kLaneCount] = {};
  bool beside_prompts_ = false;
};

}  // namespace kvcast::lower
