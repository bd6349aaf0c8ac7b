// Blocks of the KV cache by hand, and as engines state them in their logs.
#include <catch2/catch.hpp>

#include "config/deployment.hpp"
#include "config/find.hpp"
#include "config/framework.hpp"
#include "lower/kv_capacity.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

config::Model shipped(const char* name) { return config::read_model(config::find_config("models", name, {})); }

TEST_CASE("the cache is what weights and sampler leave") {
  config::Model model;
  model.layers = 2, model.hidden = 64, model.n_q_heads = 4, model.n_kv_heads = 2, model.head_dim = 16;
  model.ffn = 128, model.vocab = 1000;
  // 2 layers · 2 · 2 heads · 16 · 2 bytes are 256 a token, 4096 a block. The sampler takes 38 · 8 · 1000 = 304,000
  // bytes, more than a pass of 16 tokens; 65 MB are outside the allocator.
  const EngineMemory engine{.total_bytes = (model.weight_bytes() + 304e3 + 65e6 + 100.5 * 4096) / 0.5,
                            .utilisation = 0.5,
                            .max_sequences = 8,
                            .pass_tokens = 16,
                            .sampler = config::Framework().sampler_bytes};
  CHECK(kv_capacity(model, engine).blocks == 100);
  EngineMemory pooled = engine;
  pooled.graph_pool = {10 * 4096, Origin::kLiterature, 0.5, "a log"};
  CHECK(kv_capacity(model, pooled).blocks == 90);
  // Half of the pool more or less moves the ends of the interval by five blocks each.
  EngineMemory roomy = engine;
  roomy.total_bytes += 200e6, pooled.total_bytes += 200e6;
  const KvCapacity before = kv_capacity(model, roomy), after = kv_capacity(model, pooled);
  CHECK(before.low - after.low == 15);
  CHECK(before.high - after.high == 5);
  // Nothing is left on a small device.
  CHECK(kv_capacity(model, {.total_bytes = 1e6}).blocks == 0);
}

TEST_CASE("Llama-3.1-8B under vLLM 0.19 has the blocks of its log on an RTX 4090") {
  // LLMServingSim, bench/examples: 2588 blocks of 16 tokens; the driver states 25.251 GB.
  const KvCapacity capacity =
      kv_capacity(shipped("llama-3.1-8b"), {.total_bytes = 25.251e9, .sampler = config::Framework().sampler_bytes});
  CHECK(std::abs(capacity.blocks / 2588.0 - 1) < 0.02);
  CHECK(capacity.low < 2588);
  CHECK(capacity.high > 2588);
}

}  // namespace
}  // namespace kvcast::tests
