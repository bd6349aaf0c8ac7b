// How a model lies on the GPUs of one machine: the precision of its weights and cache, and how it is split.
#pragma once

#include "config/model.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

struct Deployment {
  int tensor_parallel = 1;       // GPUs that share each layer
  int pipeline_parallel = 1;     // stages of consecutive layers, each on tensor_parallel GPUs
  bool expert_parallel = false;  // experts are dealt out whole over the tensor_parallel GPUs
  int gpus() const { return tensor_parallel * pipeline_parallel; }
};

// `deployment:` of a run. Writes the precisions that it names into the model. UserError for anything odd, among it a
// split that the model's shape does not allow.
Deployment read_deployment(const Node& node, Model& model);

// The share of the model that one GPU computes: all layers, for a micro-batch passes through them one after the other.
// Under pipeline parallelism it holds the weights of `layers / pipeline_parallel` of them, rounded up.
Model rank_model(const Deployment& deployment, const Model& model);

}  // namespace kvcast::config
