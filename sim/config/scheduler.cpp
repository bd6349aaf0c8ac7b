// The keys of `scheduler:`, one table.
#include <fmt/format.h>

#include <vector>

#include "config/framework.hpp"
#include "config/keys.hpp"
#include "config/traffic.hpp"

namespace kvcast::config {
namespace {

using EngineKind = SchedulerRules::Kind;
constexpr const char* kEngines[] = {"vllm-v1", "vllm-v0", "sglang", "trtllm", "static"};
constexpr const char* kPrefills[] = {"chunked", "whole", "alone"};
constexpr const char* kOrders[] = {"fcfs", "lpm"};
constexpr const char* kReuses[] = {"radix", "chain", "none"};
constexpr const char* kWrites[] = {"through", "back"};
constexpr const char* kSlidingCaches[] = {"window", "all"};

using Kinds = unsigned;  // bit i: the i-th kind has the rule
constexpr Kinds kind_bit(EngineKind kind) { return 1u << static_cast<unsigned>(kind); }
constexpr Kinds kV1 = kind_bit(EngineKind::kVllmV1), kVllm = kV1 | kind_bit(EngineKind::kVllmV0),
                kSglang = kind_bit(EngineKind::kSglang), kTrtllm = kind_bit(EngineKind::kTrtllm),
                kCaching = kV1 | kSglang, kAllKinds = (1u << std::size(kEngines)) - 1;

struct Rule : Key<SchedulerRules> {
  Kinds kinds = 0;
};
constexpr Rule rule(Kinds kinds, std::string_view name, Slot<SchedulerRules> slot, std::string_view about) {
  return {{name, slot, about}, kinds};
}

// A cache of 0 needs no unit.
template <auto Member>
void read_cache_size(Section& section, const Key<SchedulerRules>& key, SchedulerRules& scheduler) {
  const std::optional<Node> node = section.optional_node(key.name);
  if (!node || node->kind() != Node::Kind::kScalar || node->text() != "0")
    return read_key(section, key, scheduler.*Member);
  scheduler.*Member = 0;
}

constexpr Limits kTokens{1, kMaxTokens}, kShare{0, 1, Dimension::kFraction}, kMemory{0, 1e18, Dimension::kBytes},
    kSpeed{1e6, 1e15, Dimension::kBytesPerSecond};

constexpr Rule kRules[] = {
    rule(kAllKinds, "kind", among<kEngines>(into<&SchedulerRules::kind>),
         "the engine whose rules apply; that of the framework if not written"),
    rule(kAllKinds, "max_num_seqs", within(1, 1'000'000, into<&SchedulerRules::max_num_seqs>),
         "sequences that run at a time, of a replica"),
    rule(kAllKinds, "max_num_batched_tokens", within(kTokens, into<&SchedulerRules::max_num_batched_tokens>),
         "tokens of a pass (TensorRT-LLM's `max_num_tokens`, SGLang's `chunked_prefill_size`)"),
    rule(kAllKinds, "block", within(1, 65536, into<&SchedulerRules::block>), "tokens per block of the cache"),
    rule(kAllKinds, "memory_utilization", within(kShare, into<&SchedulerRules::memory_utilization>),
         "share of a GPU's memory that the engine takes, as it defines it"),
    rule(kAllKinds, "sliding_cache", among<kSlidingCaches>(into<&SchedulerRules::sliding_cache>),
         "tokens that layers with a window keep: those in the `window`, or `all`, as the other layers; the engine's "
         "own if not written"),
    rule(kAllKinds, "prefix_caching", into<&SchedulerRules::prefix_caching>,
         "blocks of earlier prompts are found again by their content and not computed again; vLLM without it finds "
         "those in `host_cache` and behind"),
    rule(kCaching | kTrtllm, "reuse", among<kReuses>(into<&SchedulerRules::reuse>),
         "what later prompts find of a sequence: `radix`, every prefix of it; `chain`, what the policy has kept of it, "
         "if they continue all of it; `none`; the policy's own if not written"),
    rule(kCaching, "host_cache",
         within(kMemory, by(read_cache_size<&SchedulerRules::host_cache>, into<&SchedulerRules::host_cache>)),
         "host memory for blocks that the GPU's memory has no room for, of a replica; 0: none"),
    rule(kCaching, "storage_cache",
         within(kMemory, by(read_cache_size<&SchedulerRules::storage_cache>, into<&SchedulerRules::storage_cache>)),
         "storage of a replica for blocks, behind `host_cache`; 0: none"),
    rule(kCaching, "storage_read", within(kSpeed, into<&SchedulerRules::storage_read>),
         "rate at which storage is read"),
    rule(kCaching, "storage_write", within(kSpeed, into<&SchedulerRules::storage_write>),
         "rate at which storage is written"),
    rule(kCaching, "remote_cache",
         within(kMemory, by(read_cache_size<&SchedulerRules::remote_cache>, into<&SchedulerRules::remote_cache>)),
         "memory of other machines for a replica's blocks, behind the caches of its own; 0: none"),
    rule(kCaching, "remote_rate", within(kSpeed, into<&SchedulerRules::remote_rate>),
         "rate at which that is read and written"),
    rule(kCaching, "remote_latency", within(Limits{0, 100, Dimension::kSeconds}, into<&SchedulerRules::remote_latency>),
         "time until the first bytes of it arrive"),
    rule(kV1, "cache_writes", among<kWrites>(into<&SchedulerRules::cache_writes>),
         "`through`: blocks are copied behind the GPU when they are computed; `back`: when it has no room for them"),
    rule(kV1, "blocking_copies", into<&SchedulerRules::blocking_copies>,
         "passes wait for what is loaded for them and for the copies of prompts that they have read, as LMCache's "
         "connector has it, which copies no answers; false: copies run beside"),
    rule(kCaching, "shared_copies", into<&SchedulerRules::shared_copies>,
         "GPUs of a tensor-parallel group, which all have the same latent vectors, share one copy of them behind the "
         "GPU"),
    rule(kAllKinds, "prefill", among<kPrefills>(into<&SchedulerRules::prefill>),
         "`chunked`: chunks of prompts share passes with decodes; `whole`: a prompt is never cut; `alone`: passes read "
         "prompts or decode. The policy's own (`kvcast policies NAME`) unless given"),
    rule(kAllKinds, "in_flight", within(1, 2, into<&SchedulerRules::in_flight>),
         "passes that are composed before the results of the first are known: 2 with asynchronous scheduling"),
    rule(kV1, "full_prompt_gate", into<&SchedulerRules::full_prompt_gate>,
         "a prompt is admitted only if all of it fits (vLLM from 0.19), not its first chunk alone"),
    rule(kV1, "long_prefill_token_threshold",
         within(0, kMaxTokens, into<&SchedulerRules::long_prefill_token_threshold>),
         "most tokens of one prompt in a pass; 0: no limit"),
    rule(kVllm, "watermark", within(kShare, into<&SchedulerRules::watermark>),
         "share of the blocks that admission leaves free"),
    rule(kSglang, "max_prefill_tokens", within(kTokens, into<&SchedulerRules::max_prefill_tokens>),
         "tokens of prompts that a pass reads"),
    rule(kSglang, "new_token_ratio", within(kShare, into<&SchedulerRules::new_token_ratio>),
         "share of the running requests' missing tokens that admission reserves, at the start"),
    rule(kSglang, "retract_decode_steps", within(1, 1000, into<&SchedulerRules::retract_decode_steps>),
         "decode steps for which a retraction makes room: 20 to 0.4.9, 1 from 0.5.2"),
    rule(kSglang, "mixed_chunk", into<&SchedulerRules::mixed_chunk>, "decodes join passes that read prompts"),
    rule(kSglang, "order", among<kOrders>(into<&SchedulerRules::order>),
         "of the queue: `fcfs` (by arrival) or `lpm` (longest cached prefix first)"),
    rule(kTrtllm, "max_utilization", into<&SchedulerRules::max_utilization>,
         "admits what fits now and pauses requests later, instead of reserving memory up to a request's last token"),
    rule(kTrtllm, "chunked_prefill", into<&SchedulerRules::chunked_prefill>, "prompts may be cut into chunks")};

}  // namespace

const char* reuse_name(SchedulerRules::Reuse reuse) { return kReuses[static_cast<int>(reuse)]; }

const char* scheduler_name(EngineKind kind) { return kEngines[static_cast<int>(kind)]; }
const char* prefill_name(SchedulerRules::Prefill prefill) { return kPrefills[static_cast<int>(prefill)]; }

void refuse_other_rules(Section section, EngineKind kind) {
  for (const Rule& rule : kRules) {
    if ((rule.kinds & kind_bit(kind)) != 0 || !section.has(rule.name)) continue;
    std::vector<std::string> having;
    for (std::size_t i = 0; i < std::size(kEngines); ++i) {
      if ((rule.kinds >> i & 1u) != 0) having.emplace_back(kEngines[i]);
    }
    throw UserError(section.where(rule.name), fmt::format("scheduler: {} has no rule {}, but {} has",
                                                          scheduler_name(kind), rule.name, fmt::join(having, ", ")));
  }
}

SchedulerRules laid_over(const SchedulerRules& base, const SchedulerRules& written) {
  if (written.kind && base.kind && *written.kind != *base.kind) return written;
  SchedulerRules out = base;
  out.where = written.where;
  for (const Rule& rule : kRules) {
    if (rule.slot.text(rule, written)) rule.slot.copy(written, out);
  }
  return out;
}

void for_each_rule(const SchedulerRules& scheduler,
                   const std::function<void(const std::string&, const std::string&)>& visit) {
  for_each_text(kRules, scheduler, visit);
}

std::string canonical(const SchedulerRules& scheduler) {
  std::string text = "scheduler";
  for_each_rule(scheduler, [&](const std::string& key, const std::string& value) { text += " " + key + " " + value; });
  return text;
}

SchedulerRules read_scheduler(Section section) {
  check_keys(section, kRules);
  SchedulerRules scheduler;
  scheduler.where = section.where();
  read_keys(section, kRules, scheduler);
  if (scheduler.kind) refuse_other_rules(section, *scheduler.kind);
  return scheduler;
}

Shapes scheduler_shapes() { return {{"scheduler", shapes_in(kRules)}}; }

}  // namespace kvcast::config
