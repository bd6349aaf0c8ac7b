#include "policy/request_memory.hpp"

#include <algorithm>

namespace kvcast::policy {
namespace {

// Largest number of tokens that a layer holds while a prompt is read, mean over heads.
double most_held(const Policy& policy, const config::Model& model, int layer, const Lengths& request) {
  const PromptBlocks blocks = policy.prompt_blocks(model, layer, request);
  const std::int64_t prompt = request.prompt_tokens;
  if (blocks.tokens == 0) return static_cast<double>(prompt);
  double most = 0;
  for (std::int64_t start = 0; start < prompt; start += blocks.tokens) {
    const std::int64_t end = std::min(prompt, start + blocks.tokens);
    most = std::max(most, blocks.held_at(start) + static_cast<double>(end - start));
  }
  return most;
}

PoolMemory& pool_of(RequestMemory& memory, const MemoryItem& item) {
  return item.pool == graph::Pool::kHbm ? memory.hbm : memory.dram;
}

}  // namespace

RequestMemory request_memory(const Policy& policy, const config::Model& model, const Lengths& request,
                             double attended) {
  RequestMemory memory;
  const auto at = [&](std::int64_t tokens) { return storage(policy, {&model, 1, tokens, request, attended}); };
  for (const MemoryItem& item : at(request.prompt_tokens)) {
    (item.shared ? pool_of(memory, item).shared : pool_of(memory, item).read) += item.bytes;
  }
  const double packed = model.kv_bytes_per_token_layer();
  const double plain = config::with_plain_cache(model).kv_bytes_per_token_layer();
  for (int layer = 0; layer < model.layers; ++layer) {
    memory.hbm.reading += most_held(policy, model, layer, request) * (model.plain(layer) ? plain : packed);
  }
  memory.dram.reading = memory.dram.read;
  if (request.decode_steps == 0) return memory;
  for (const MemoryItem& item : at(request.bound())) {
    if (!item.shared) pool_of(memory, item).per_token += item.bytes / static_cast<double>(request.decode_steps);
  }
  for (PoolMemory* pool : {&memory.hbm, &memory.dram}) {
    pool->per_token -= pool->read / static_cast<double>(request.decode_steps);
  }
  return memory;
}

}  // namespace kvcast::policy
