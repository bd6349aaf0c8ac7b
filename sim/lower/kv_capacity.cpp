// vLLM measures its peak before it allocates the cache: a pass of as many tokens as fit, then the sampler with a row of
// logits for each of the largest number of sequences. The sampler decides for vocabularies of 128K, and tensor
// parallelism does not divide it.
#include "lower/kv_capacity.hpp"

#include <algorithm>
#include <cmath>

#include "base/origin.hpp"
#include "lower/dense.hpp"

namespace kvcast::lower {
namespace {

// Bytes of the sampler for each logit.
const Value& sampler_bytes() {
  static const Value kSampler{
      38, Origin::kLiterature, 0.1,
      "peaks in logs of vLLM: 41 (0.6, H100, Llama-3-8B: 1.26 GiB for 256 sequences), 38.6 (0.14, Qwen3-8B: 1.40 GiB), "
      "35.4 (0.19, RTX 4090, Llama-3.1-8B)"};
  return kSampler;
}

// Bytes outside PyTorch's allocator: the context and, between several GPUs, communicators.
const Value& outside_bytes(bool several) {
  static const Value kAlone{0.065e9, Origin::kLiterature, 0.5, "logs of vLLM on one GPU: 0.03 to 0.1 GB"};
  static const Value kSeveral{0.5e9, Origin::kLiterature, 0.3,
                              "logs of vLLM with tensor parallelism: about 0.5 GB a GPU"};
  return several ? kSeveral : kAlone;
}

// sign: 1 if uncertain numbers are larger, -1 if smaller.
std::int64_t blocks_of(const config::Model& rank, const EngineMemory& engine, double sign) {
  const auto shifted = [sign](const Value& value) { return value.value * (1 + sign * value.uncertainty); };
  const auto logits = static_cast<double>(engine.max_sequences) * rank.vocab * rank.ranks;
  const double forward = activation_bytes(rank, static_cast<double>(engine.pass_tokens), 0);
  const double left = engine.utilisation * engine.total_bytes - rank.weight_bytes() -
                      std::max(forward, shifted(sampler_bytes()) * logits) - shifted(outside_bytes(rank.ranks > 1)) -
                      engine.graph_pool;
  const double block = static_cast<double>(engine.block) * rank.kv_bytes_per_token();
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(left / block)));
}

}  // namespace

KvCapacity kv_capacity(const config::Model& rank, const EngineMemory& engine) {
  return {blocks_of(rank, engine, 0), blocks_of(rank, engine, 1), blocks_of(rank, engine, -1)};
}

}  // namespace kvcast::lower
