// Requests that arrive at a service, and the scheduler that serves them, as a run writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/section.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// Numbers of tokens of requests.
struct LengthDistribution {
  enum class Kind { kFixed, kLognormal, kUniform, kFile };
  Kind kind = Kind::kFixed;
  double mean = 0, cv = 0;         // kFixed: mean alone; kLognormal: before rounding to whole tokens
  std::int64_t low = 0, high = 0;  // kUniform: both included
  std::string file;                // kFile: a CSV with columns prompt_tokens, output_tokens
  SourceLocation where;
};

// Requests of a group have the same first `tokens` of their prompts; requests are spread over the groups at random.
struct SharedPrefix {
  std::int64_t tokens = 0, groups = 1;  // no tokens: nothing is shared
  // Different prompts of a group. Those of all groups come in one order, again and again; 0: none comes again.
  std::int64_t prompts = 0;
};

// Later turns of a session have the prompt and the answer before in their prompt.
struct Sessions {
  std::int64_t turns = 1;
  std::int64_t turn_tokens = 0;  // that a later turn adds
  double think_time = 0;         // seconds from the end of a turn to the arrival of the next one
};

// Longest times that a request may take, seconds.
struct Slo {
  std::optional<double> ttft, tpot, e2e;
};

struct Traffic {
  enum class Arrivals { kRate, kAll, kConcurrency, kTrace };
  enum class Process { kPoisson, kConstant, kGamma };
  enum class Format { kKnownFromContent, kAzure, kBurstGpt, kMooncake, kBailian, kVllmBench, kLlmServingSim, kKvcast };

  Arrivals arrivals = Arrivals::kRate;
  double rate = 0;  // requests a second, turns of sessions included; of kRate
  Process process = Process::kPoisson;
  double cv = 1;                 // of the times between arrivals: 1 for poisson, 0 for constant
  std::int64_t concurrency = 0;  // requests, or sessions, at a time; of kConcurrency
  double think_time = 0;         // seconds from the end of one of these to the arrival of the next one
  std::string file;              // of kTrace
  Format format = Format::kKnownFromContent;
  double speedup = 1;                               // arrival times of the trace are divided by it
  std::int64_t requests = 2000;                     // the most that arrive, turns of sessions included
  LengthDistribution prompt_tokens, output_tokens;  // not of kTrace
  double length_factor = 1;          // on all output lengths: answers may grow under a policy that evicts
  bool published_factor = false;     // it is the one that was published for the policy and its budget
  SharedPrefix shared_prefix;        // not of kTrace
  std::optional<Sessions> sessions;  // not of kTrace
  std::uint64_t seed = 1;
  std::optional<Slo> slo;
  SourceLocation where;  // of the section
};

// Names as a config writes them: "poisson", "burstgpt".
const char* process_name(Traffic::Process process);
const char* format_name(Traffic::Format format);  // not of kKnownFromContent

// Reads `traffic:` of a run. Throws UserError for invalid values, keys that contradict each other and keys without an
// effect. Opens no file.
Traffic read_traffic(Section section);

// Calls visit(key, text) for every key that has an effect, defaults included: "slo.ttft" and the like for keys of maps,
// times in seconds.
void for_each_key(const Traffic& traffic, const std::function<void(const std::string&, const std::string&)>& visit);

// Rules of a serving engine's scheduler; what is not set is the framework's.
struct SchedulerRules {
  enum class Kind { kVllmV1, kVllmV0, kSglang, kTrtllm, kStatic };
  enum class Prefill { kChunked, kWhole, kAlone };
  // Prefixes of all prompts and answers; what was kept of a sequence, by the prompt that continues it; nothing.
  enum class Reuse { kRadix, kChain, kNone };
  enum class WriteTo { kThrough, kBack };
  enum class SlidingCache { kWindow, kAll };  // tokens that layers with a window keep
  enum class Order { kFcfs, kLpm };

  std::optional<Kind> kind;
  std::optional<std::int64_t> max_num_seqs;            // sequences at a time, per replica
  std::optional<std::int64_t> max_num_batched_tokens;  // tokens of a pass; of a chunk in SGLang
  std::optional<std::int64_t> block;                   // tokens per block or page of the cache
  std::optional<double> memory_utilization;  // share of a GPU's memory that the engine takes, as it defines it
  std::optional<SlidingCache> sliding_cache;
  std::optional<bool> prefix_caching;
  std::optional<Reuse> reuse;
  std::optional<double> host_cache;                                // bytes of host memory for blocks; 0: none
  std::optional<double> storage_cache, remote_cache;               // bytes of the caches behind it; 0: none
  std::optional<double> storage_read, storage_write, remote_rate;  // bytes a second
  std::optional<double> remote_latency;                            // seconds
  std::optional<WriteTo> cache_writes;
  std::optional<bool> blocking_copies;  // passes wait for copies to and from the caches behind the GPU
  std::optional<bool> shared_copies;    // of latent vectors, by the GPUs of a tensor-parallel group
  std::optional<Prefill> prefill;
  std::optional<std::int64_t> in_flight;  // passes composed before the results of the first are known
  // vLLM
  std::optional<bool> full_prompt_gate;
  std::optional<std::int64_t> long_prefill_token_threshold;
  std::optional<double> watermark;  // share of the blocks
  // SGLang
  std::optional<std::int64_t> max_prefill_tokens;
  std::optional<double> new_token_ratio;
  std::optional<std::int64_t> retract_decode_steps;
  std::optional<bool> mixed_chunk;
  std::optional<Order> order;
  // TensorRT-LLM
  std::optional<bool> max_utilization, chunked_prefill;

  SourceLocation where;  // of the section
};
// Returns the kind as a config writes it: "vllm-v1".
const char* scheduler_name(SchedulerRules::Kind kind);
const char* prefill_name(SchedulerRules::Prefill prefill);  // "whole"

const char* reuse_name(SchedulerRules::Reuse reuse);  // "radix"

// Reads `scheduler:` of a run. Throws UserError for invalid values, and for rules of other engines if the kind is
// written.
SchedulerRules read_scheduler(Section section);
// The rules of `base` except where `written` has its own; if it has another kind, `written` alone.
SchedulerRules laid_over(const SchedulerRules& base, const SchedulerRules& written);
// Text that determines the rules.
std::string canonical(const SchedulerRules& scheduler);
// Calls visit(key, text) for every rule that is set, the kind first.
void for_each_rule(const SchedulerRules& scheduler,
                   const std::function<void(const std::string&, const std::string&)>& visit);
// Throws UserError, located in the section, for a rule that this engine does not have: for runs whose framework decides
// on the kind.
void refuse_other_rules(Section section, SchedulerRules::Kind kind);

}  // namespace kvcast::config
