// Shared by every scheme's layer: the shape of the model, and the work before and after attention.
#pragma once

#include "device/async.hpp"
#include "device/blas.hpp"
#include "pipeline/dense.cuh"

namespace kvcast::kernels {

// A few layers of a decoder model, each with its own weights, so that none is found in the L2, and a step of `batch`
// sequences of `context` tokens.
struct PipelineShape {
  int layers, steps;  // steps: per call
  int hidden, q_heads, kv_heads, dim, ffn, vocab;
  int context, batch;
  int group() const { return q_heads / kv_heads; }
  int heads() const { return batch * kv_heads; }
  double weight_bytes() const;  // of all layers and the head
};
// Reads the shape from the axes. Skips the state, and returns false, for shapes that the kernels do not support.
bool read_shape(State& state, PipelineShape& shape);

// A step's new keys and values of sequence 0 and KV head 0, and the distances to the others.
struct AppendTo {
  Half* keys = nullptr;
  Half* values = nullptr;
  AppendPlace place{};
};

class Dense {
 public:
  explicit Dense(const PipelineShape& shape);

  // Starts the residual stream of a new step; numbers differ from step to step.
  void begin_step(int step);
  // Norm, projections, rotation; queries [batch][q heads][dim], keys and values appended.
  void before(Queue queue, int layer, Half* query, const AppendTo& append);
  // Computes the branch that the next layer adds from the attention output [batch][q heads][dim].
  void after(Queue queue, int layer, const Half* attended);
  // Final norm, head, and the copy of the tokens to the host.
  void head(Stream& stream);

 private:
  void norm(Queue queue);
  const Half* weights(const DeviceArray<Half>& all, int layer) const {
    return all.data() + all.size() / as_size(s_.layers) * as_size(layer);
  }

  PipelineShape s_;
  Blas blas_;
  DeviceArray<Half> embedding_, zeros_, qkv_weights_, out_weights_, up_weights_, down_weights_, head_weights_;
  DeviceArray<Half> residual_, normed_, qkv_, branch_, gate_up_, active_, logits_;
  DeviceArray<float> cosines_, sines_;
  DeviceArray<std::uint32_t> tokens_;
  PinnedMemory tokens_host_;
  const Half* add_a_ = nullptr;  // added by the next norm
  const Half* add_b_ = nullptr;
};

}  // namespace kvcast::kernels
