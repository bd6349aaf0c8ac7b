#include "config/deployment.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "config/section.hpp"

namespace kvcast::config {
namespace {

constexpr int kMostGpus = 1024;

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

Deployment read_deployment(const Node& node, Model& model) {
  Section section(node, "deployment");
  section.only({"weights", "kv_cache", "tensor_parallel", "pipeline_parallel", "expert_parallel"});
  const auto precision = [&](std::string_view key, const std::vector<std::string>& names, Precision fallback) {
    return *precision_from_name(section.choice(key, names, std::string(precision_name(fallback))));
  };
  const bool weights = section.has("weights");
  model.weights = precision("weights", weight_precisions(), model.weights);
  if (weights) model.expert_weights = model.weights;
  model.cache = precision("kv_cache", cache_precisions(), model.cache);
  Deployment deployment;
  deployment.tensor_parallel = static_cast<int>(section.integer("tensor_parallel", 1, kMostGpus, 1));
  deployment.pipeline_parallel = static_cast<int>(section.integer("pipeline_parallel", 1, kMostGpus, 1));
  deployment.expert_parallel = section.flag("expert_parallel", false);
  section.finish();
  if (model.layers > 0) check(deployment, model, section);  // no model while a schema is recorded
  return deployment;
}

Model rank_model(const Deployment& deployment, const Model& model) {
  return rank_of(model, deployment.tensor_parallel, deployment.expert_parallel);
}

}  // namespace kvcast::config
