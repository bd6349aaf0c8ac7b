// Deployment of a model: the precision of its weights and cache, its split over the GPUs of one machine, and the
// number of such machines that serve requests.
#pragma once

#include <optional>

#include "config/model.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// The way in which a router chooses a replica for a request.
enum class Routing { kRoundRobin, kLeastLoaded, kPrefix };
// Returns it as a config writes it: "round_robin".
const char* routing_name(Routing routing);

// The way of a prompt's cache from the replica that reads it to the one that decodes. What is not set is the engine's.
struct Transfer {
  enum class Overlap { kNone, kChunks, kLayers };  // sent after the prompt; or as each chunk, or each layer, is done
  std::optional<double> rate;                      // bytes/s, of each GPU to its counterpart
  std::optional<double> latency;                   // seconds of a transfer
  std::optional<double> post;  // seconds to post one descriptor: of a block's keys, or values, of a layer
  std::optional<Overlap> overlap;
  std::optional<double> staging;  // bytes of pinned memory of a decoding replica in which caches wait for the GPU's
};
// Returns it as a config writes it: "layers".
const char* overlap_name(Transfer::Overlap overlap);

struct Deployment {
  int tensor_parallel = 1;               // GPUs that share each layer
  int pipeline_parallel = 1;             // stages of consecutive layers, each on tensor_parallel GPUs
  bool expert_parallel = false;          // experts are distributed whole over the tensor_parallel GPUs
  bool data_parallel_attention = false;  // each of these attends for sequences of its own, and shares the experts alone
  int replicas = 1;                      // of the model, each on gpus() GPUs; more than one only with traffic
  Routing routing = Routing::kRoundRobin;
  int groups() const {
    return data_parallel_attention ? tensor_parallel : 1;
  }                                                              // of sequences that a replica attends to
  int head_ranks() const { return tensor_parallel / groups(); }  // GPUs that share the heads of a layer
  // The most sequences of a batch that one GPU attends to.
  int own_sequences(int batch) const { return (batch + groups() - 1) / groups(); }
  int gpus() const { return tensor_parallel * pipeline_parallel; }  // of a replica
  // Replicas that read prompts alone, in addition to `replicas`, which then only decode.
  int prefill_replicas = 0;
  Transfer transfer;
  int all_gpus() const { return gpus() * (replicas + prefill_replicas); }
};

// Reads `deployment:` of a run and writes the precisions that it names into the model. Throws UserError for invalid
// values, including a split that the model's shape does not allow.
Deployment read_deployment(const Node& node, Model& model);

// The share of the model that one GPU computes: all layers, because a micro-batch passes through them one after the
// other. Under pipeline parallelism the GPU holds the weights of `layers / pipeline_parallel` of them, rounded up.
Model rank_model(const Deployment& deployment, const Model& model);

}  // namespace kvcast::config
