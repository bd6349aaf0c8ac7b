// Rules by which an engine composes its passes, and the releases that have them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "config/traffic.hpp"
#include "serving/link.hpp"
#include "serving/tiers.hpp"

namespace kvcast::serving {

using Engine = config::SchedulerRules::Kind;
// Ways in which a policy lets prompts be read: cut where a budget of tokens ends; whole in one pass, at most one prompt
// beyond the budget; alone in a pass while the other sequences wait.
using Prompts = config::SchedulerRules::Prefill;

// A policy decides by what it keeps of a sequence what can be used again: every prefix of it; what was kept, by a
// prompt that goes on after the sequence; nothing.
using Reuse = config::SchedulerRules::Reuse;

// The part of a request that an engine does: all of it; its prompt, whose memory it holds until the cache has been sent
// on; or its decode steps, on a cache that comes from elsewhere.
enum class Role { kWhole, kPrefill, kDecode };

// SGLang's own rules. A page is Rules::block, the chunk is Rules::max_num_batched_tokens (chunked_prefill_size).
struct SglangRules {
  std::int64_t max_prefill_tokens = 16384;  // of new tokens in one pass, in all releases
  // Part of their remaining outputs that is reserved for running requests. It starts at `ratio` (0.7 for the default
  // conservativeness 1), loses (ratio − floor) / ratio_steps in a decode pass without retraction, down to the floor,
  // and starts again when idle (0.3.5 on; 0.3.0 starts at 0.1).
  double ratio = 0.7;
  double ratio_floor = 0.14;  // as a part of `ratio`
  std::int64_t ratio_steps = 600;
  bool mixed_chunk = false;           // decodes join the passes that read prompts
  std::int64_t retract_steps = 1;     // free tokens a sequence at which retraction stops: 20 to 0.4.9, 1 from 0.5.2 on
  bool full_flag = true;              // no prompt is tried until a decode pass has dropped an ended request (0.3.4 on)
  bool longest_prefix_first = false;  // lpm, the default to 0.4.3.post2; fcfs since
  bool page_margin = false;  // every admission reserves a further page, and only outputs not yet made (main, 2026)
};

// TensorRT-LLM's own rules. max_num_tokens is Rules::max_num_batched_tokens, max_batch_size is Rules::max_num_seqs.
struct TrtllmRules {
  bool chunked_prefill = false;  // enable_chunked_prefill, off by default
  std::int64_t chunk_unit = 0;   // chunks that are cut are multiples of it; 0: the block
  bool max_utilisation = false;  // MAX_UTILIZATION instead of GUARANTEED_NO_EVICT, the default
};

// vLLM V0's own rules.
struct VllmV0Rules {
  // Chunked prefill; default for contexts above 32K from 0.5.3 on, with a budget of 512 tokens, 2048 from 0.6.5 on.
  bool chunked = false;
};

// Layers that attend to a window. With groups = 0 there are none, or they are part of Footprint.
struct WindowRules {
  // vLLM V1 (v1/core/kv_cache_utils.py): layers of one kind form groups of as many layers, and a block of the pool
  // holds its tokens for one group. A request gives back blocks that have left the window.
  std::int64_t groups = 0, others = 1;  // of layers with the window, and of those that keep all tokens
  std::int64_t tokens = 0;              // of the window

  // Leading blocks of a sequence of `computed` tokens that its next token does not attend to.
  std::int64_t left(std::int64_t computed, std::int64_t block) const {
    return groups == 0 ? 0 : std::max<std::int64_t>(0, computed - tokens + 1) / block;
  }
  // Blocks in which the tokens before the next one's own lie, at most; to be found again, as many are needed.
  std::int64_t blocks(std::int64_t block) const { return (tokens - 1 + block - 1) / block; }
};

struct Rules {
  Engine engine = Engine::kVllmV1;
  Role role = Role::kWhole;  // others: kVllmV1, kSglang, kTrtllm
  std::int64_t max_num_seqs = 256;
  std::int64_t max_num_batched_tokens = 2048;
  std::int64_t block = 16;  // tokens
  // Blocks that requests can have. The one that vLLM V1 never gives out (its null block) is not counted here. With a
  // prefix cache, a simulation needs memory for each of them.
  std::int64_t blocks = std::numeric_limits<std::int64_t>::max() / 4;
  // vLLM V1, SGLang and TensorRT-LLM; others read every prompt in full. Without it, vLLM V1 finds what `tiers` have.
  bool prefix_caching = true;
  bool full_prompt_gate = true;  // vLLM V1 from 0.19 on: a known sequence must fit, to 0.18 its first chunk only
  // Passes that are composed before the first of them ends. 2: vLLM V1 from 0.14 on, SGLang's overlap from 0.3.6 on,
  // TensorRT-LLM's overlap scheduler, vLLM V0's output processor from 0.6.0 on.
  std::int64_t in_flight = 2;
  std::int64_t long_prefill_token_threshold = 0;  // vLLM V1: longest chunk of a prompt; 0: no limit
  // Part of the blocks that an admission leaves free: vLLM V0 0.01; vLLM V1 0 (June 2026: 0.02 to 0.05 advised), there
  // only while another request runs.
  double watermark = 0;
  Prompts prompts = Prompts::kChunked;
  std::int64_t max_context = std::numeric_limits<std::int64_t>::max() / 4;  // longer requests are rejected
  double host_bytes = std::numeric_limits<double>::infinity();              // capacity for Footprint::host_bytes
  // Caches behind the GPU's, the link to them, and what a block of the pool takes of both.
  Reuse reuse = Reuse::kRadix;
  std::vector<TierRules> tiers;
  bool write_back = false;
  // Passes wait for copies to and from these caches, and no answers are copied: LMCache's connector of vLLM V1, which
  // loads before a pass (start_load_kv) and stores what it has read after it (wait_for_save).
  bool blocking_copies = false;
  LinkRates link;
  double link_bytes = 0;    // of a block, over the link of one GPU
  double stored_bytes = 0;  // of a block, of all GPUs
  bool host_copies =
      false;  // requests have all their blocks in host memory (Footprint::host_bytes), the first of tiers
  // Pinned memory of a replica that decodes (Role::kDecode), to which caches are sent; 0: to the GPU's.
  double staging = 0;
  double recalled_bytes = 0;  // that a sequence that decodes recalls in a pass, over the link of one GPU
  WindowRules windows;
  SglangRules sglang;
  TrtllmRules trtllm;
  VllmV0Rules vllm_v0;
  bool skip = true;  // sums passes of one composition in closed form; the outcomes are the same without

  // The engine's defaults.
  static Rules of(Engine engine);
};

// Throws UserError if a number is out of range, or two rules do not go together.
void check(const Rules& rules);

}  // namespace kvcast::serving
