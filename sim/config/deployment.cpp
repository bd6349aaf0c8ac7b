#include "config/deployment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "config/section.hpp"

namespace kvcast::config {
namespace {

constexpr int kMostGpus = 1024, kMostReplicas = 4096;
constexpr const char* kRoutings[] = {"round_robin", "least_loaded", "prefix"};

void check(const Deployment& deployment, const Model& model, const Section& section) {
  try {
    rank_of(model, deployment.tensor_parallel, deployment.expert_parallel);
  } catch (const std::invalid_argument& why) {
    throw UserError(section.where("tensor_parallel"),
                    fmt::format("tensor_parallel: {} cannot be split over {} GPUs: {}", model.title,
                                deployment.tensor_parallel, why.what()));
  }
  if (deployment.pipeline_parallel > model.layers) {
    throw UserError(section.where("pipeline_parallel"),
                    fmt::format("pipeline_parallel: {} has {} layers", model.title, model.layers));
  }
  if (deployment.expert_parallel && !model.experts) {
    throw UserError(section.where("expert_parallel"), fmt::format("expert_parallel: {} has no experts", model.title));
  }
}

}  // namespace

const char* routing_name(Routing routing) { return kRoutings[static_cast<std::size_t>(routing)]; }

Deployment read_deployment(const Node& node, Model& model) {
  Section section(node, "deployment");
  section.only(
      {"weights", "kv_cache", "tensor_parallel", "pipeline_parallel", "expert_parallel", "replicas", "routing"});
  if (section.has("weights")) {
    const KeyName key(
        "weights",
        "precision of projections, networks and experts; embedding, head, norms and routers keep 16 bits. "
        "As released by default");
    model.weights = *precision_from_name(section.choice(key, weight_precisions()));
    model.expert_weights = model.weights;
  }
  const KeyName key("kv_cache", "precision of keys and values, with any policy except KIVI, which packs them itself");
  model.cache = *precision_from_name(section.choice(key, cache_precisions(), std::string(precision_name(model.cache))));
  Deployment deployment;
  deployment.tensor_parallel =
      static_cast<int>(section.integer({"tensor_parallel",
                                        "GPUs that share each layer: heads, networks and vocabulary are split, KV "
                                        "heads are copied if there are fewer than GPUs"},
                                       1, kMostGpus, 1));
  deployment.pipeline_parallel = static_cast<int>(section.integer(
      {"pipeline_parallel", "stages of consecutive layers; the batch passes them in as many micro-batches"}, 1,
      kMostGpus, 1));
  deployment.expert_parallel =
      section.flag({"expert_parallel", "experts are distributed whole over these GPUs rather than split"}, false);
  deployment.replicas = static_cast<int>(section.integer(
      {"replicas", "engines that serve `traffic`, each on GPUs of its own; rates and numbers of clients are of all"}, 1,
      kMostReplicas, 1));
  const KeyName routing("routing",
                        "the replica that gets a request: the next one, the one with fewest requests, or the one that "
                        "got most of the prompt's start before");
  const std::string text = section.choice(routing, {std::begin(kRoutings), std::end(kRoutings)}, kRoutings[0]);
  deployment.routing = static_cast<Routing>(std::ranges::find(kRoutings, text) - kRoutings);
  section.finish();
  if (model.layers > 0) check(deployment, model, section);  // no model while a schema is recorded
  return deployment;
}

Model rank_model(const Deployment& deployment, const Model& model) {
  return rank_of(model, deployment.tensor_parallel, deployment.expert_parallel);
}

}  // namespace kvcast::config
