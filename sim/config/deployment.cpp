#include "config/deployment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "config/section.hpp"

namespace kvcast::config {
namespace {

constexpr int kMostGpus = 1024, kMostReplicas = 4096;
constexpr double kSlowestLink = 1e6, kFastestLink = 1e13, kLongestWait = 100;
constexpr const char* kOverlaps[] = {"none", "chunks", "layers"};
constexpr const char* kRoutings[] = {"round_robin", "least_loaded", "prefix"};

void check(const Deployment& deployment, const Model& model, const Section& section) {
  if (deployment.data_parallel_attention && (!model.experts || !deployment.expert_parallel)) {
    throw UserError(section.where("data_parallel_attention"),
                    model.experts
                        ? "data_parallel_attention: needs expert_parallel, since GPUs share nothing but experts"
                        : fmt::format("data_parallel_attention: {} has no experts that GPUs could share; give "
                                      "`replicas`",
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

}  // namespace

Transfer read_transfer(Section section) {
  Transfer transfer;
  const auto read = [&](const KeyName& key, Dimension dimension, double low, double high, std::optional<double>& to) {
    if (section.has(key.name)) to = section.quantity(key, dimension, low, high);
  };
  read({"rate", "of the link from each GPU to its counterpart; of the engine's transfers by default"},
       Dimension::kBytesPerSecond, kSlowestLink, kFastestLink, transfer.rate);
  read({"latency", "time of a transfer beside its bytes; 0 by default"}, Dimension::kSeconds, 0, kLongestWait,
       transfer.latency);
  read({"post",
        "time to post a descriptor, one for the keys and one for the values of each block and layer; the "
        "engine's by default"},
       Dimension::kSeconds, 0, 1, transfer.post);
  const KeyName overlap("overlap",
                        "what is sent while the prompt is read: none, chunks that are done, layers that are done; of a "
                        "policy that evicts at the prompt's end only layers of the last pass. The engine's by default");
  if (section.has("overlap"))
    transfer.overlap = section.one_of(overlap, kOverlaps, std::optional(Transfer::Overlap::kNone));
  read({"staging",
        "pinned host memory of a replica that decodes, to which caches are sent and in which they wait for the GPU's "
        "memory; 0 B: that memory is asked for before a cache is sent"},
       Dimension::kBytes, 0, 1e18, transfer.staging);
  section.finish();
  return transfer;
}

void read_experts_on_host(Section section, const Deployment& deployment, Model& model) {
  const int layers = section.count(
      {"layers", "first layers of the model whose routed experts lie there (llama.cpp's --n-cpu-moe)"}, 0, 10000, 0);
  const int rows = section.count(
      {"fetch_rows",
       "passes of so many tokens or more fetch the experts that they activate over the link and compute them on the "
       "GPU; 1: all passes, 0: the CPU always computes them"},
      0, 1'000'000'000, 0);
  section.finish();
  if (shape::is_recording()) return;
  if (!model.experts)
    throw UserError(section.where("layers"), fmt::format("experts_on_host: {} has no experts", model.title));
  if (layers > model.layers)
    throw UserError(section.where("layers"), fmt::format("layers: {} has {} layers", model.title, model.layers));
  if (layers > 0 && deployment.gpus() > 1)
    throw UserError(section.where("layers"),
                    "experts_on_host: of one GPU, since those that share a model would share its CPU; leave out "
                    "tensor_parallel and pipeline_parallel");
  model.experts->host_layers = layers, model.experts->fetch_rows = rows;
}

const char* overlap_name(Transfer::Overlap overlap) { return kOverlaps[static_cast<std::size_t>(overlap)]; }

const char* routing_name(Routing routing) { return kRoutings[static_cast<std::size_t>(routing)]; }

namespace {

void check_turboquant(const Model& model, const SourceLocation& at) {
  const char* reason = nullptr;
  if (model.latent || model.compressed) reason = "all heads share a latent vector";
  if (model.sliding_window > 0) reason = "layers with sliding windows have a cache of their own";
  if ((model.head_dim & (model.head_dim - 1)) != 0) reason = "the rotation needs heads of a power of two of numbers";
  if (reason != nullptr) throw UserError(at, fmt::format("kv_cache: no TurboQuant in {}: {}", model.title, reason));
}

CacheFormat read_cache(Section& section, const Model& model) {
  const KeyName key("kv_cache",
                    "precision of keys and values, with any policy except KIVI, which packs them itself; {keys: int8, "
                    "values: int4} for one of each. turboquant_*: vLLM's, for heads of a power of two of numbers; the "
                    "first and the last two layers stay at bf16, except in models with recurrences");
  const auto format = [](Section& from, const KeyName& name) {
    return *precision_from_name(from.choice(name, weight_precisions(), "bf16"));
  };
  const auto node = shape::is_recording() ? std::nullopt : section.optional_node(key);
  if (!node || node->kind() != Node::Kind::kMap) {
    const CacheFormat one = *cache_from_name(section.choice(key, cache_formats(), "bf16"));
    if (one.turboquant) check_turboquant(model, section.where("kv_cache"));
    return one;
  }
  Section both(*node, "kv_cache");
  const CacheFormat out(format(both, {"keys", "precision of keys"}), format(both, {"values", "precision of values"}));
  both.finish();
  if ((model.latent || model.compressed) && out.keys != out.values)
    throw UserError(node->where(), "kv_cache: a latent vector or compressed entry is key and value at once");
  return out;
}

}  // namespace

Deployment read_deployment(const Node& node, Model& model) {
  Section section(node, "deployment");
  section.only({"weights", "kv_cache", "tensor_parallel", "pipeline_parallel", "expert_parallel",
                "data_parallel_attention", "experts_on_host", "replicas", "routing", "prefill_replicas", "transfer"});
  if (section.has("weights")) {
    const KeyName key(
        "weights",
        "precision of projections, networks and experts; embedding, head, norms and routers keep 16 bits. "
        "As released by default");
    model.weights = *precision_from_name(section.choice(key, weight_precisions()));
    model.expert_weights = model.shared_weights = model.weights;
  }
  model.cache = read_cache(section, model);
  if (model.cache.turboquant && !model.recurrence) model.plain_ends = std::min(2, model.layers / 2);
  Deployment deployment;
  deployment.tensor_parallel =
      section.count({"tensor_parallel",
                     "GPUs that share each layer: heads, networks and vocabulary are split, KV "
                     "heads are copied if there are fewer than GPUs"},
                    1, kMostGpus, 1);
  deployment.pipeline_parallel = section.count(
      {"pipeline_parallel", "stages of consecutive layers; the batch passes them in as many micro-batches"}, 1,
      kMostGpus, 1);
  deployment.expert_parallel =
      section.flag({"expert_parallel", "experts are distributed whole over these GPUs rather than split"}, false);
  deployment.data_parallel_attention = section.flag(
      {"data_parallel_attention",
       "each of these GPUs has the attention of all heads, for sequences of its own, and their cache; they "
       "share the experts alone (with `expert_parallel`)"},
      false);
  if (section.has("experts_on_host"))
    read_experts_on_host(
        section.section({"experts_on_host", "routed experts that lie in host memory, with one GPU a replica"},
                        "experts_on_host"),
        deployment, model);
  deployment.replicas = section.count(
      {"replicas", "engines that serve `traffic`, each on GPUs of its own; rates and numbers of clients are of all"}, 1,
      kMostReplicas, 1);
  const KeyName routing("routing",
                        "the replica that gets a request: the next one, the one with fewest requests, or the one that "
                        "got most of the prompt's start before");
  deployment.routing = section.one_of<Routing>(routing, kRoutings, Routing{});
  deployment.prefill_replicas = section.count(
      {"prefill_replicas",
       "engines that read prompts alone, in addition to `replicas`, which then only decode; 0: prompts are read where "
       "they are decoded"},
      0, kMostReplicas, 0);
  if (section.has("transfer")) {
    deployment.transfer = read_transfer(
        section.section({"transfer", "the link between them, and what is sent over it when"}, "transfer"));
    if (deployment.prefill_replicas == 0)
      throw UserError(section.where("transfer"), "transfer: needs `prefill_replicas`, whose caches are sent");
  }
  section.finish();
  if (model.layers > 0) check(deployment, model, section);  // no model while a schema is recorded
  return deployment;
}

Model rank_model(const Deployment& deployment, const Model& model) {
  if (deployment.data_parallel_attention && model.experts) return rank_of_experts(model, deployment.tensor_parallel);
  return rank_of(model, deployment.head_ranks(), deployment.expert_parallel);
}

}  // namespace kvcast::config
