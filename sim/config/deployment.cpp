#include "config/deployment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "config/keys.hpp"

namespace kvcast::config {
namespace {

constexpr int kMostGpus = 1024, kMostReplicas = 4096;
constexpr double kSlowestLink = 1e6, kFastestLink = 1e13, kLongestWait = 100;
constexpr const char* kOverlaps[] = {"none", "chunks", "layers"};
constexpr const char* kRoutings[] = {"round_robin", "least_loaded", "prefix"};

void check(const Deployment& deployment, const Model& model, const Section& section) {
  if (deployment.data_parallel_attention && (!model.experts || !deployment.expert_parallel)) {
    throw UserError(
        section.where("data_parallel_attention"),
        model.experts ? "data_parallel_attention: needs expert_parallel, since GPUs share nothing but experts"
                      : fmt::format("data_parallel_attention: {} has no experts that GPUs could share; give `replicas`",
                                    model.title));
  }
  try {
    rank_model(deployment, model);
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

constexpr Key<Transfer> kTransferKeys[] = {
    {"rate", within(Limits{kSlowestLink, kFastestLink, Dimension::kBytesPerSecond}, into<&Transfer::rate>),
     "of the link from each GPU to its counterpart; of the engine's transfers by default"},
    {"latency", within(Limits{0, kLongestWait, Dimension::kSeconds}, into<&Transfer::latency>),
     "time of a transfer beside its bytes; 0 by default"},
    {"post", within(Limits{0, 1, Dimension::kSeconds}, into<&Transfer::post>),
     "time to post a descriptor, one for the keys and one for the values of each block and layer; the engine's by "
     "default"},
    {"overlap", among<kOverlaps>(into<&Transfer::overlap>),
     "what is sent while the prompt is read: none, chunks that are done, layers that are done; of a policy that evicts "
     "at the prompt's end only layers of the last pass. The engine's by default"},
    {"staging", within(Limits{0, 1e18, Dimension::kBytes}, into<&Transfer::staging>),
     "pinned host memory of a replica that decodes, to which caches are sent and in which they wait for the GPU's "
     "memory; 0 B: that memory is asked for before a cache is sent"}};

constexpr Key<Experts> kOnHost[] = {
    {"layers", within(0, 10000, into<&Experts::host_layers>),
     "first layers of the model whose routed experts lie there (llama.cpp's --n-cpu-moe)"},
    {"fetch_rows", within(0, 1'000'000'000, into<&Experts::fetch_rows>),
     "passes of so many tokens or more fetch the experts that they activate over the link and compute them on the GPU; "
     "1: all passes, 0: the CPU always computes them"}};

void read_transfer(Section& section, const Key<Deployment>& key, Deployment& deployment) {
  if (section.has(key.name)) read_map(section, key.name, kTransferKeys, deployment.transfer);
}

constexpr Key<CacheFormat> kBoth[] = {
    {"keys", among<weight_precisions>(into<&CacheFormat::keys>), "precision of keys"},
    {"values", among<weight_precisions>(into<&CacheFormat::values>), "precision of values"}};

// Keys without a member are those of the model.
constexpr Key<Deployment> kDeployment[] = {
    {"weights", among<weight_precisions>(own<Deployment>(KeyShape::Type::kText)),
     "precision of projections, networks and experts; embedding, head, norms and routers keep 16 bits. As released by "
     "default"},
    {"kv_cache", among<cache_formats>(own<Deployment>(KeyShape::Type::kText, "bf16")),
     "precision of keys and values, with any policy except KIVI, which packs them itself; {keys: int8, values: int4} "
     "for one of each. turboquant_*: vLLM's, for heads of a power of two of numbers; the first and the last two layers "
     "stay at bf16, except in models with recurrences"},
    {"tensor_parallel", within(1, kMostGpus, into<&Deployment::tensor_parallel>),
     "GPUs that share each layer: heads, networks and vocabulary are split, KV heads are copied if there are fewer "
     "than GPUs"},
    {"pipeline_parallel", within(1, kMostGpus, into<&Deployment::pipeline_parallel>),
     "stages of consecutive layers; the batch passes them in as many micro-batches"},
    {"expert_parallel", into<&Deployment::expert_parallel>,
     "experts are distributed whole over these GPUs rather than split"},
    {"data_parallel_attention", into<&Deployment::data_parallel_attention>,
     "each of these GPUs has the attention of all heads, for sequences of its own, and their cache; they share the "
     "experts alone (with `expert_parallel`)"},
    {"experts_on_host", {KeyShape::Type::kMap}, "routed experts that lie in host memory, with one GPU a replica"},
    {"replicas", within(1, kMostReplicas, into<&Deployment::replicas>),
     "engines that serve `traffic`, each on GPUs of its own; rates and numbers of clients are of all"},
    {"routing", among<kRoutings>(into<&Deployment::routing>),
     "the replica that gets a request: the next one, the one with fewest requests, or the one that got most of the "
     "prompt's start before"},
    {"prefill_replicas", within(0, kMostReplicas, into<&Deployment::prefill_replicas>),
     "engines that read prompts alone, in addition to `replicas`, which then only decode; 0: prompts are read where "
     "they are decoded"},
    {"transfer", by(read_transfer, into<&Deployment::transfer>),
     "the link between them, and what is sent over it when"}};

void read_experts_on_host(Section section, const Deployment& deployment, Model& model) {
  Experts experts = model.experts.value_or(Experts());
  read_keys(section, kOnHost, experts);
  section.finish();
  if (!model.experts)
    throw UserError(section.where("layers"), fmt::format("experts_on_host: {} has no experts", model.title));
  if (experts.host_layers > model.layers)
    throw UserError(section.where("layers"), fmt::format("layers: {} has {} layers", model.title, model.layers));
  if (experts.host_layers > 0 && deployment.gpus() > 1)
    throw UserError(section.where("layers"),
                    "experts_on_host: of one GPU, since those that share a model would share its CPU; leave out "
                    "tensor_parallel and pipeline_parallel");
  model.experts = experts;
}

void check_turboquant(const Model& model, const SourceLocation& at) {
  const char* reason = nullptr;
  if (model.latent || model.compressed) reason = "all heads share a latent vector";
  if (model.sliding_window > 0) reason = "layers with sliding windows have a cache of their own";
  if ((model.head_dim & (model.head_dim - 1)) != 0) reason = "the rotation needs heads of a power of two of numbers";
  if (reason != nullptr) throw UserError(at, fmt::format("kv_cache: no TurboQuant in {}: {}", model.title, reason));
}

CacheFormat read_cache(Section& section, const Model& model) {
  const auto node = section.optional_node("kv_cache");
  if (!node || node->kind() != Node::Kind::kMap) {
    const CacheFormat one = *cache_from_name(section.choice("kv_cache", cache_formats(), "bf16"));
    if (one.turboquant) check_turboquant(model, section.where("kv_cache"));
    return one;
  }
  Section both(*node, "kv_cache");
  CacheFormat out;
  read_keys(both, kBoth, out);
  both.finish();
  if ((model.latent || model.compressed) && out.keys != out.values)
    throw UserError(node->where(), "kv_cache: a latent vector or compressed entry is key and value at once");
  return out;
}

}  // namespace

const char* overlap_name(Transfer::Overlap overlap) { return kOverlaps[static_cast<std::size_t>(overlap)]; }

const char* routing_name(Routing routing) { return kRoutings[static_cast<std::size_t>(routing)]; }

Deployment read_deployment(const Node& node, Model& model) {
  Section section(node, "deployment");
  check_keys(section, kDeployment);
  if (section.has("weights")) {
    model.weights = *precision_from_name(section.choice("weights", weight_precisions()));
    model.expert_weights = model.shared_weights = model.weights;
  }
  model.cache = read_cache(section, model);
  if (model.cache.turboquant && !model.recurrence) model.plain_ends = std::min(2, model.layers / 2);
  Deployment deployment;
  read_keys(section, kDeployment, deployment);
  if (section.has("experts_on_host"))
    read_experts_on_host(section.section("experts_on_host", "experts_on_host"), deployment, model);
  if (section.has("transfer") && deployment.prefill_replicas == 0)
    throw UserError(section.where("transfer"), "transfer: needs `prefill_replicas`, whose caches are sent");
  check(deployment, model, section);
  return deployment;
}

Shapes deployment_shapes() {
  return {{"deployment", shapes_in(kDeployment)},
          {"transfer", shapes_in(kTransferKeys)},
          {"experts_on_host", shapes_in(kOnHost)}};
}

Model rank_model(const Deployment& deployment, const Model& model) {
  if (deployment.data_parallel_attention && model.experts) return rank_of_experts(model, deployment.tensor_parallel);
  return rank_of(model, deployment.head_ranks(), deployment.expert_parallel);
}

}  // namespace kvcast::config
