// vLLM measures its peak before it allocates the cache: a pass of as many tokens as fit, then the sampler with a row of
// logits for each of the largest number of sequences. The sampler decides for vocabularies of 128K, and tensor
// parallelism does not divide it.
#include "lower/kv_capacity.hpp"

#include <algorithm>
#include <cmath>

#include "lower/dense.hpp"

namespace kvcast::lower {
namespace {

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
  const double left = engine.utilisation * engine.total_bytes - rank.gpu_weight_bytes() -
                      std::max(forward, shifted(engine.sampler) * logits) - shifted(outside_bytes(rank.ranks > 1)) -
                      shifted(engine.graph_pool);
  const double block = static_cast<double>(engine.block) * rank.kv_bytes_per_token();
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(left / block)));
}

}  // namespace

KvCapacity kv_capacity(const config::Model& rank, const EngineMemory& engine) {
  return {blocks_of(rank, engine, 0), blocks_of(rank, engine, 1), blocks_of(rank, engine, -1)};
}

}  // namespace kvcast::lower
