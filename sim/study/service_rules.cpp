// An engine's rules: defaults of its release, of the framework and of the policy, and what the run writes.
#include "base/error.hpp"
#include "policies/all.hpp"
#include "study/service.hpp"

namespace kvcast::study {

using config::SchedulerRules;
using serving::Engine;

serving::Rules service_rules(const config::Run& run) {
  const SchedulerRules& s = run.scheduler;
  serving::Rules rules = serving::Rules::of(s.kind.value_or(Engine::kVllmV1));
  const std::int64_t longest = run.model.max_context;
  const auto set = [](auto& to, const auto& from) {
    if (from) to = *from;
  };
  if (run.framework.max_batch > 0)
    rules.max_num_seqs = std::min<std::int64_t>(rules.max_num_seqs, run.framework.max_batch);
  set(rules.max_num_seqs, s.max_num_seqs);
  rules.max_num_batched_tokens = run.framework.prefill_chunk > 0 ? run.framework.prefill_chunk : longest;
  if (rules.engine == Engine::kVllmV0) {
    rules.vllm_v0.chunked = longest > run.framework.chunks_beyond;
    if (!rules.vllm_v0.chunked) rules.max_num_batched_tokens = std::max<std::int64_t>(longest, 2048);
  }
  set(rules.max_num_batched_tokens, s.max_num_batched_tokens);
  set(rules.block, s.block), set(rules.prefix_caching, s.prefix_caching), set(rules.in_flight, s.in_flight);
  set(rules.full_prompt_gate, s.full_prompt_gate);
  set(rules.long_prefill_token_threshold, s.long_prefill_token_threshold), set(rules.watermark, s.watermark);
  const policy::Descriptor& policy = policy::find_policy(run.policy);
  rules.prompts = policy.prefill, rules.reuse = policy.reuse().reuse;
  // A recurrence, and the window and open entries of compressed attention, go on only where they were kept: at the end
  // of a sequence.
  if (run.model.state_bytes() > 0 && rules.reuse == SchedulerRules::Reuse::kRadix)
    rules.reuse = SchedulerRules::Reuse::kChain;
  if (rules.engine == Engine::kTrtllm && rules.reuse == SchedulerRules::Reuse::kChain)
    rules.reuse = SchedulerRules::Reuse::kNone;
  set(rules.prompts, s.prefill), set(rules.reuse, s.reuse);
  set(rules.blocking_copies, s.blocking_copies);
  rules.write_back = s.cache_writes == SchedulerRules::WriteTo::kBack;
  if (s.host_cache.value_or(0) > 0) rules.tiers.push_back({*s.host_cache});
  if (s.storage_cache.value_or(0) > 0)
    rules.tiers.push_back({*s.storage_cache, s.storage_read.value(), s.storage_write.value()});
  if (s.remote_cache.value_or(0) > 0)
    rules.tiers.push_back(
        {*s.remote_cache, s.remote_rate.value(), s.remote_rate.value(), s.remote_latency.value_or(0)});
  const config::Link& link = run.hardware.link;
  rules.link = {link.h2d_bandwidth, link.d2h_bandwidth, link.both_bandwidth};
  set(rules.sglang.max_prefill_tokens, s.max_prefill_tokens), set(rules.sglang.ratio, s.new_token_ratio);
  set(rules.sglang.retract_steps, s.retract_decode_steps), set(rules.sglang.mixed_chunk, s.mixed_chunk);
  if (s.order) rules.sglang.longest_prefix_first = *s.order == SchedulerRules::Order::kLpm;
  set(rules.trtllm.max_utilisation, s.max_utilization), set(rules.trtllm.chunked_prefill, s.chunked_prefill);
  rules.max_context = longest;
  using Sliding = SchedulerRules::SlidingCache;
  if (rules.engine == Engine::kTrtllm && run.model.sliding_window > 0 && sliding_cache(run, rules) == Sliding::kWindow)
    rules.trtllm.chunk_unit = std::max<std::int64_t>(rules.block, 256);  // py_executor_creator.py
  return rules;
}

// vLLM V1 gives back what has left the window (the hybrid cache manager, 0.9.1 on), but not if a connector moves caches
// elsewhere: most know one kind of layers only (vllm/config/vllm.py). SGLang sets disable_hybrid_swa_memory for Gemma 2
// and 3, and to 0.5.7 for gpt-oss (server_args.py, pull request 17261); TensorRT-LLM's window is the longest sequence
// unless max_attention_window is given; vLLM V0 has one kind of layers.
SchedulerRules::SlidingCache sliding_cache(const config::Run& run, const serving::Rules& rules) {
  const bool moves = !rules.tiers.empty() || run.deployment.prefill_replicas > 0;
  const bool window = rules.engine == Engine::kStatic || (rules.engine == Engine::kVllmV1 && !moves);
  const auto& written = run.scheduler.sliding_cache;
  if (!written) return window ? SchedulerRules::SlidingCache::kWindow : SchedulerRules::SlidingCache::kAll;
  if (*written == SchedulerRules::SlidingCache::kWindow && moves) {
    throw UserError(
        run.scheduler.where,
        "scheduler.sliding_cache: caches behind the GPU, and prefill apart, need all tokens of layers with a "
        "window");
  }
  return *written;
}

SchedulerRules written_rules(const config::Run& run) {
  const serving::Rules rules = service_rules(run);
  SchedulerRules s;
  s.kind = rules.engine;
  s.max_num_seqs = rules.max_num_seqs, s.max_num_batched_tokens = rules.max_num_batched_tokens;
  s.block = rules.block, s.memory_utilization = memory_utilization(run, rules);
  s.prefix_caching = rules.prefix_caching, s.host_cache = run.scheduler.host_cache.value_or(0);
  if (rules.prefix_caching || !rules.tiers.empty()) s.reuse = rules.reuse;
  if (!rules.tiers.empty() && rules.engine == Engine::kVllmV1) {
    s.cache_writes = rules.write_back ? SchedulerRules::WriteTo::kBack : SchedulerRules::WriteTo::kThrough;
    s.blocking_copies = rules.blocking_copies;
  }
  if (run.model.sliding_window > 0) s.sliding_cache = sliding_cache(run, rules);
  s.prefill = rules.prompts, s.in_flight = rules.in_flight;
  switch (rules.engine) {
    case Engine::kVllmV1:
      s.full_prompt_gate = rules.full_prompt_gate;
      s.long_prefill_token_threshold = rules.long_prefill_token_threshold;
      [[fallthrough]];
    case Engine::kVllmV0:
      s.watermark = rules.watermark;
      break;
    case Engine::kSglang:
      s.max_prefill_tokens = rules.sglang.max_prefill_tokens, s.new_token_ratio = rules.sglang.ratio;
      s.retract_decode_steps = rules.sglang.retract_steps, s.mixed_chunk = rules.sglang.mixed_chunk;
      s.order = rules.sglang.longest_prefix_first ? SchedulerRules::Order::kLpm : SchedulerRules::Order::kFcfs;
      break;
    case Engine::kTrtllm:
      s.max_utilization = rules.trtllm.max_utilisation, s.chunked_prefill = rules.trtllm.chunked_prefill;
      break;
    case Engine::kStatic:
      break;
  }
  return s;
}

}  // namespace kvcast::study
