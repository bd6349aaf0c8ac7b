// Deployment of a model on the GPUs of one machine: the precision of its weights and cache, and how it is split.
#pragma once

#include "config/model.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

struct Deployment {
  int tensor_parallel = 1;       // GPUs that share each layer
  int pipeline_parallel = 1;     // stages of consecutive layers, each on tensor_parallel GPUs
  bool expert_parallel = false;  // experts are distributed whole over the tensor_parallel GPUs
  int gpus() const { return tensor_parallel * pipeline_parallel; }
};

// Reads `deployment:` of a run and writes the precisions that it names into the model. Throws UserError for invalid
// values, including a split that the model's shape does not allow.
Deployment read_deployment(const Node& node, Model& model);

// The share of the model that one GPU computes: all layers, because a micro-batch passes through them one after the
// other. Under pipeline parallelism the GPU holds the weights of `layers / pipeline_parallel` of them, rounded up.
Model rank_model(const Deployment& deployment, const Model& model);

}  // namespace kvcast::config
