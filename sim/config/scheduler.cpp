// The keys of `scheduler:`, one table.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/framework.hpp"
#include "config/traffic.hpp"

namespace kvcast::config {
namespace {

using EngineKind = Scheduler::Kind;
constexpr const char* kKinds[] = {"vllm-v1", "vllm-v0", "sglang", "trtllm", "static"};
constexpr const char* kPrefills[] = {"chunked", "whole", "alone"};
constexpr const char* kOrders[] = {"fcfs", "lpm"};
constexpr const char* kReuses[] = {"radix", "chain", "none"};
constexpr const char* kWrites[] = {"through", "back"};
constexpr const char* kSlidingCaches[] = {"window", "all"};

// Names of the values of an enumeration.
template <class T>
constexpr std::span<const char* const> names_of() {
  if constexpr (std::is_same_v<T, Scheduler::Prefill>) return kPrefills;
  if constexpr (std::is_same_v<T, Scheduler::Order>) return kOrders;
  if constexpr (std::is_same_v<T, Scheduler::Reuse>) return kReuses;
  if constexpr (std::is_same_v<T, Scheduler::WriteTo>) return kWrites;
  if constexpr (std::is_same_v<T, Scheduler::SlidingCache>) return kSlidingCaches;
}

using Kinds = unsigned;  // bit i: the i-th kind has the rule
constexpr Kinds kind_bit(EngineKind kind) { return 1u << static_cast<unsigned>(kind); }
constexpr Kinds kVllm = kind_bit(EngineKind::kVllmV1) | kind_bit(EngineKind::kVllmV0),
                kCaching = kind_bit(EngineKind::kVllmV1) | kind_bit(EngineKind::kSglang),
                kAllKinds = (1u << std::size(kKinds)) - 1;

struct Rule {
  const char* name;
  std::variant<std::optional<std::int64_t> Scheduler::*, std::optional<double> Scheduler::*,
               std::optional<bool> Scheduler::*, std::optional<Scheduler::Prefill> Scheduler::*,
               std::optional<Scheduler::Order> Scheduler::*, std::optional<Scheduler::Reuse> Scheduler::*,
               std::optional<Scheduler::WriteTo> Scheduler::*, std::optional<Scheduler::SlidingCache> Scheduler::*>
      member;
  Kinds kinds;
  std::string_view about;
  std::int64_t low = 1, high = kMaxTokens;     // of a count
  Dimension dimension = Dimension::kFraction;  // of a quantity
};

constexpr Rule kRules[] = {
    {"max_num_seqs", &Scheduler::max_num_seqs, kAllKinds, "sequences that run at a time, of a replica", 1, 1'000'000},
    {"max_num_batched_tokens", &Scheduler::max_num_batched_tokens, kAllKinds,
     "tokens of a pass (TensorRT-LLM's `max_num_tokens`, SGLang's `chunked_prefill_size`)"},
    {"block", &Scheduler::block, kAllKinds, "tokens per block of the cache", 1, 65536},
    {"memory_utilization", &Scheduler::memory_utilization, kAllKinds,
     "share of a GPU's memory that the engine takes, as it defines it"},
    {"sliding_cache", &Scheduler::sliding_cache, kAllKinds,
     "tokens that layers with a window keep: those in the `window`, or `all`, as the other layers; the engine's own if "
     "not written"},
    {"prefix_caching", &Scheduler::prefix_caching, kAllKinds,
     "blocks of earlier prompts are found again by their content and not computed again; vLLM without it finds those "
     "in `host_cache` and behind"},
    {"reuse", &Scheduler::reuse, kCaching | kind_bit(EngineKind::kTrtllm),
     "what later prompts find of a sequence: `radix`, every prefix of it; `chain`, what the policy has kept of it, if "
     "they continue all of it; `none`; the policy's own if not written"},
    {"host_cache", &Scheduler::host_cache, kCaching,
     "host memory for blocks that the GPU's memory has no room for, of a replica; 0: none", 0, 0, Dimension::kBytes},
    {"storage_cache", &Scheduler::storage_cache, kCaching,
     "storage of a replica for blocks, behind `host_cache`; 0: none", 0, 0, Dimension::kBytes},
    {"storage_read", &Scheduler::storage_read, kCaching, "rate at which storage is read", 0, 0,
     Dimension::kBytesPerSecond},
    {"storage_write", &Scheduler::storage_write, kCaching, "rate at which storage is written", 0, 0,
     Dimension::kBytesPerSecond},
    {"remote_cache", &Scheduler::remote_cache, kCaching,
     "memory of other machines for a replica's blocks, behind the caches of its own; 0: none", 0, 0, Dimension::kBytes},
    {"remote_rate", &Scheduler::remote_rate, kCaching, "rate at which that is read and written", 0, 0,
     Dimension::kBytesPerSecond},
    {"remote_latency", &Scheduler::remote_latency, kCaching, "time until the first bytes of it arrive", 0, 0,
     Dimension::kSeconds},
    {"cache_writes", &Scheduler::cache_writes, kind_bit(EngineKind::kVllmV1),
     "`through`: blocks are copied behind the GPU when they are computed; `back`: when it has no room for them"},
    {"blocking_copies", &Scheduler::blocking_copies, kind_bit(EngineKind::kVllmV1),
     "passes wait for what is loaded for them and for the copies of prompts that they have read, as LMCache's "
     "connector "
     "has it, which copies no answers; false: copies run beside"},
    {"shared_copies", &Scheduler::shared_copies, kCaching,
     "GPUs of a tensor-parallel group, which all have the same latent vectors, share one copy of them behind the GPU"},
    {"prefill", &Scheduler::prefill, kAllKinds,
     "`chunked`: chunks of prompts share passes with decodes; `whole`: a prompt is never cut; `alone`: passes read "
     "prompts or decode. The policy's own (`kvcast policies NAME`) unless given"},
    {"in_flight", &Scheduler::in_flight, kAllKinds,
     "passes that are composed before the results of the first are known: 2 with asynchronous scheduling", 1, 2},
    {"full_prompt_gate", &Scheduler::full_prompt_gate, kVllm,
     "a prompt is admitted only if all of it fits (vLLM from 0.19), not its first chunk alone"},
    {"long_prefill_token_threshold", &Scheduler::long_prefill_token_threshold, kVllm,
     "most tokens of one prompt in a pass; 0: no limit", 0},
    {"watermark", &Scheduler::watermark, kVllm, "share of the blocks that admission leaves free"},
    {"max_prefill_tokens", &Scheduler::max_prefill_tokens, kind_bit(EngineKind::kSglang),
     "tokens of prompts that a pass reads"},
    {"new_token_ratio", &Scheduler::new_token_ratio, kind_bit(EngineKind::kSglang),
     "share of the running requests' missing tokens that admission reserves, at the start"},
    {"retract_decode_steps", &Scheduler::retract_decode_steps, kind_bit(EngineKind::kSglang),
     "decode steps for which a retraction makes room: 20 to 0.4.9, 1 from 0.5.2", 1, 1000},
    {"mixed_chunk", &Scheduler::mixed_chunk, kind_bit(EngineKind::kSglang), "decodes join passes that read prompts"},
    {"order", &Scheduler::order, kind_bit(EngineKind::kSglang),
     "of the queue: `fcfs` (by arrival) or `lpm` (longest cached prefix first)"},
    {"max_utilization", &Scheduler::max_utilization, kind_bit(EngineKind::kTrtllm),
     "admits what fits now and pauses requests later, instead of reserving memory up to a request's last token"},
    {"chunked_prefill", &Scheduler::chunked_prefill, kind_bit(EngineKind::kTrtllm), "prompts may be cut into chunks"},
};

// A cache of 0 needs no unit.
double read_quantity(Section& section, const KeyName& key, Dimension dimension) {
  if (dimension == Dimension::kFraction) return section.quantity(key, dimension, 0, 1);
  if (dimension == Dimension::kBytesPerSecond) return section.quantity(key, dimension, 1e6, 1e15);
  if (dimension == Dimension::kSeconds) return section.quantity(key, dimension, 0, 100);
  const std::optional<Node> node = section.optional_node(key.name);
  if (node && node->kind() == Node::Kind::kScalar && node->text() == "0") return 0;
  return section.quantity(key, dimension, 0, 1e18);
}

void read_rule(Section& section, const Rule& rule, Scheduler& scheduler) {
  const KeyName key(rule.name, rule.about);
  if (!section.has(key.name)) return;
  std::visit(
      [&](auto member) {
        auto& value = scheduler.*member;
        using T = typename std::remove_reference_t<decltype(value)>::value_type;
        if constexpr (std::is_same_v<T, std::int64_t>) {
          value = section.integer(key, rule.low, rule.high);
        } else if constexpr (std::is_same_v<T, bool>) {
          value = section.flag(key);
        } else if constexpr (std::is_enum_v<T>) {
          value = section.one_of<T>(key, names_of<T>());
        } else {
          value = read_quantity(section, key, rule.dimension);
        }
      },
      rule.member);
}

}  // namespace

const char* reuse_name(Scheduler::Reuse reuse) { return kReuses[static_cast<int>(reuse)]; }

const char* scheduler_name(EngineKind kind) { return kKinds[static_cast<int>(kind)]; }
const char* prefill_name(Scheduler::Prefill prefill) { return kPrefills[static_cast<int>(prefill)]; }

void refuse_other_rules(Section section, EngineKind kind) {
  for (const Rule& rule : kRules) {
    if ((rule.kinds & kind_bit(kind)) != 0 || !section.has(rule.name)) continue;
    std::vector<std::string> having;
    for (std::size_t i = 0; i < std::size(kKinds); ++i) {
      if ((rule.kinds >> i & 1u) != 0) having.emplace_back(kKinds[i]);
    }
    throw UserError(section.where(rule.name), fmt::format("scheduler: {} has no rule {}, but {} has",
                                                          scheduler_name(kind), rule.name, fmt::join(having, ", ")));
  }
}

Scheduler laid_over(const Scheduler& base, const Scheduler& written) {
  if (written.kind && base.kind && *written.kind != *base.kind) return written;
  Scheduler out = base;
  out.where = written.where;
  if (written.kind) out.kind = written.kind;
  for (const Rule& rule : kRules) {
    std::visit(
        [&](auto member) {
          if (written.*member) out.*member = written.*member;
        },
        rule.member);
  }
  return out;
}

void for_each_rule(const Scheduler& scheduler,
                   const std::function<void(const std::string&, const std::string&)>& visit) {
  if (scheduler.kind) visit("kind", scheduler_name(*scheduler.kind));
  for (const Rule& rule : kRules) {
    std::visit(
        [&](auto member) {
          const auto& value = scheduler.*member;
          if (!value) return;
          using T = typename std::remove_cvref_t<decltype(value)>::value_type;
          if constexpr (std::is_enum_v<T>) {
            visit(rule.name, names_of<T>()[static_cast<std::size_t>(*value)]);
          } else {
            visit(rule.name, fmt::format("{}", *value));
          }
        },
        rule.member);
  }
}

std::string canonical(const Scheduler& scheduler) {
  std::string text = "scheduler";
  for_each_rule(scheduler, [&](const std::string& key, const std::string& value) { text += " " + key + " " + value; });
  return text;
}

Scheduler read_scheduler(Section section) {
  std::vector<KeyName> keys{"kind"};
  for (const Rule& rule : kRules) keys.emplace_back(rule.name);
  section.only(keys);
  Scheduler scheduler;
  scheduler.where = section.where();
  if (section.has("kind")) {
    scheduler.kind = section.one_of<EngineKind>(
        {"kind", "the engine whose rules apply; that of the framework if not written"}, kKinds);
  }
  for (const Rule& rule : kRules) read_rule(section, rule, scheduler);
  section.finish();
  if (scheduler.kind) refuse_other_rules(section, *scheduler.kind);
  return scheduler;
}

}  // namespace kvcast::config
