#include "serving/rules.hpp"

#include "base/error.hpp"

namespace kvcast::serving {
namespace {

bool caches(Engine engine) {
  return engine == Engine::kVllmV1 || engine == Engine::kSglang || engine == Engine::kTrtllm;
}

void require(bool holds, const char* what) {
  if (!holds) throw UserError(what);
}

}  // namespace

Rules Rules::of(Engine engine) {
  Rules rules;
  rules.engine = engine;
  rules.prefix_caching = caches(engine);
  switch (engine) {
    case Engine::kVllmV1:
      break;
    case Engine::kVllmV0:  // its budget is the longest context, 2048 at least; output processor on from 0.6.0
      rules.watermark = 0.01;
      break;
    case Engine::kSglang:  // 80 GB GPUs
      rules.max_num_seqs = 4096;
      rules.max_num_batched_tokens = 8192;
      rules.block = 1;
      break;
    case Engine::kTrtllm:
      rules.max_num_seqs = 2048;
      rules.max_num_batched_tokens = 8192;
      rules.block = 32;
      break;
    case Engine::kStatic:
      rules.in_flight = 1;
      break;
  }
  return rules;
}

void check(const Rules& rules) {
  require(rules.role == Role::kWhole || (rules.engine != Engine::kVllmV0 && rules.engine != Engine::kStatic),
          "prefill and decode apart are modelled for vllm-v1, sglang and trtllm");
  require(rules.max_num_seqs >= 1, "at least 1 sequence at a time is needed");
  require(rules.max_num_batched_tokens >= 1, "at least 1 token a pass is needed");
  require(rules.block >= 1, "a block has at least 1 token");
  require(rules.blocks >= 1, "at least 1 block is needed");
  require(rules.in_flight == 1 || rules.in_flight == 2, "1 or 2 passes can be in flight");
  require(rules.long_prefill_token_threshold >= 0, "a threshold of tokens is not negative");
  require(rules.watermark >= 0 && rules.watermark < 1, "the watermark is a part of the blocks below 1");
  require(rules.max_context >= 2, "a context has at least 2 tokens");
  require(rules.host_bytes >= 0 && rules.staging >= 0, "host memory is not negative");
  require(!rules.prefix_caching || caches(rules.engine), "the prefix cache is modelled for vllm-v1, sglang and trtllm");
  require(rules.engine != Engine::kTrtllm || (rules.tiers.empty() && rules.reuse != Reuse::kChain),
          "caches behind the GPU, and what a policy has kept, are modelled for vllm-v1 and sglang");
  require(!rules.blocking_copies || (rules.engine == Engine::kVllmV1 && !rules.write_back),
          "copies that passes wait for are modelled for vllm-v1, written through");
  require(rules.prefix_caching || rules.tiers.empty() || (rules.engine == Engine::kVllmV1 && !rules.write_back),
          "caches behind the GPU without the GPU's own are modelled for vllm-v1, written through");
  const WindowRules& windows = rules.windows;
  require(windows.groups >= 0 && windows.others >= 1 && (windows.groups == 0 || windows.tokens >= 1),
          "groups of layers with a window have at least 1 token, and others are there");
  require((windows.groups == 0 && windows.others == 1) ||
              (rules.engine == Engine::kVllmV1 && rules.tiers.empty() && rules.role == Role::kWhole),
          "groups of layers are modelled for vllm-v1, without caches behind the GPU or prefill apart");
  require(rules.engine != Engine::kSglang || rules.block <= rules.max_num_batched_tokens,
          "a chunk of sglang has at least the tokens of one page");
  require(rules.sglang.max_prefill_tokens >= 1, "at least 1 prompt token a pass is needed");
  require(rules.sglang.ratio >= 0 && rules.sglang.ratio <= 1, "a ratio of new tokens is between 0 and 1");
  require(rules.sglang.ratio_floor >= 0 && rules.sglang.ratio_floor <= 1, "the floor of a ratio is between 0 and 1");
  require(rules.sglang.ratio_steps >= 1, "a ratio decays in at least 1 step");
  require(rules.sglang.retract_steps >= 1, "retraction makes room for at least 1 step");
  require(rules.trtllm.chunk_unit >= 0, "a unit of chunks is not negative");
  const std::int64_t unit = rules.trtllm.chunk_unit > 0 ? rules.trtllm.chunk_unit : rules.block;
  require(rules.engine != Engine::kTrtllm || !rules.trtllm.chunked_prefill || unit <= rules.max_num_batched_tokens,
          "a pass of trtllm has at least the tokens of one unit of chunks");
}

}  // namespace kvcast::serving
