// The fleet of a run: its replicas, and the transfers between those that read prompts and those that decode.
#include "study/service.hpp"

namespace kvcast::study {
namespace {

using Overlap = config::Transfer::Overlap;

// Transfers of engines, where a run states none. Bytes a second of each GPU: vLLM's Mooncake connector 142 GB/s on 8
// GPUs with a port of 400 Gb/s each (32K tokens, 4.5 GB in 32 ms), the Mooncake engine alone 190 GB/s on such 8
// (repository of Mooncake, 3b5a594). vLLM's NIXL connector posted 1,785 descriptors in 6.7 ms
// (vllm-project/vllm#50913); SGLang and TensorRT-LLM send what is contiguous as one.
struct Defaults {
  double rate = 0, post = 0;
  Overlap overlap = Overlap::kNone;
};
Defaults defaults_of(serving::Engine engine) {
  switch (engine) {
    case serving::Engine::kSglang:  // whole pages of each chunk once it has been read
      return {23.75e9, 0, Overlap::kChunks};
    case serving::Engine::kTrtllm:
      return {23.75e9, 0, Overlap::kNone};
    default:
      return {17.75e9, 6.7e-3 / 1785, Overlap::kNone};
  }
}

}  // namespace

config::Transfer written_transfer(const config::Run& run) {
  const Defaults of_engine = defaults_of(service_rules(run).engine);
  config::Transfer transfer = run.deployment.transfer;
  transfer.rate = transfer.rate.value_or(of_engine.rate);
  transfer.latency = transfer.latency.value_or(0);
  transfer.post = transfer.post.value_or(of_engine.post);
  transfer.overlap = transfer.overlap.value_or(of_engine.overlap);
  transfer.staging = transfer.staging.value_or(0);
  return transfer;
}

serving::Fleet fleet_of(const config::Run& run, const ServiceMemory& memory) {
  const config::Deployment& d = run.deployment;
  serving::Fleet fleet{d.replicas, d.routing};
  fleet.readers.replicas = d.prefill_replicas;
  if (d.prefill_replicas == 0) return fleet;
  const config::Transfer transfer = written_transfer(run);
  serving::TransferRules& rules = fleet.readers.transfer;
  rules.rate = *transfer.rate, rules.overlap = *transfer.overlap;
  rules.latency = to_picos(*transfer.latency), rules.post = to_picos(*transfer.post);
  rules.block_bytes = memory.block_bytes;
  // Keys and values are apart; a latent vector is both.
  rules.descriptors = (run.model.latent ? 1 : 2) * run.model.attending_layers(), rules.layers = run.model.layers;
  return fleet;
}

}  // namespace kvcast::study
