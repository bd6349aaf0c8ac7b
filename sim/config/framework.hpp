// A serving framework's way of running the model: the host's work between kernels and between steps, and the operators
// that it launches. Frameworks are files under configs/frameworks; a run names one and may change its keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "config/hardware.hpp"
#include "config/model.hpp"
#include "config/traffic.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

inline constexpr std::int64_t kMaxTokens = 100'000'000;  // the largest number of tokens that a setting may state

// Tokens of a prefill pass of engines on GPUs with 80 GB (vLLM, SGLang, TensorRT-LLM).
inline constexpr std::int64_t kPassTokens = 8192;

struct Framework {
  enum class Launch { kCudaGraph, kCompiled, kEager };
  enum class AttentionKernels { kNative, kFlash2 };

  std::string name;  // the file's name with the run's changes; empty if the run names none
  Launch launch = Launch::kCudaGraph;
  bool expand_kv_heads = false;  // K and V are expanded to all query heads in memory before attention
  // Every query head reads its KV head separately: Inductor's code for attention with the math backend (gpt-fast).
  bool reread_kv_heads = false;
  // Kernels of decode attention run one query head at a time, so that the heads of a group read their KV head from the
  // L2 (PagedAttention; masked multi-head attention of TensorRT-LLM).
  bool separate_query_heads = false;
  // Operations that serving systems fuse run as separate operators of the framework: norms, RoPE, projections,
  // activations, a policy's scores and merges (Hugging Face transformers).
  bool unfused = false;
  // Top-k selection runs as torch.topk (see lower/torch_topk.hpp), not as one custom kernel.
  bool torch_topk = false;
  // Kernels around a policy's top-k in addition to those of its definition, each of which reads and writes the scores
  // once: an engine's code for a policy is less fused than the policy allows.
  int selection_operators = 0;
  // Attention runs as separate operators that write the scores to memory (Hugging Face transformers,
  // attn_implementation eager).
  bool eager_attention = false;
  // A step copies the layer's cache to append to it (torch.cat in transformers' DynamicCache); applies to policies that
  // attend to everything they keep.
  bool concatenate_cache = false;
  // Operators that unpack the whole of a quantised cache into 16-bit numbers in each step, before attention: 4 in
  // transformers, 1 in exllamav2; 0: the attention kernel unpacks what it reads.
  int unpack_operators = 0;
  // Before the attention of each prompt chunk, one kernel unpacks a quantised cache, the chunk's own tokens included
  // (LMDeploy).
  bool flatten_prompt = false;
  // The head computes logits of every token of the prompt, and converts them to single precision (transformers before
  // 4.45).
  bool prompt_logits = false;
  // A scalar is read back from the device in each layer of a step, after attention, so that the host launches nothing
  // ahead (kvpress: its hooks compare a position on the device).
  bool layer_sync = false;
  // FlashAttention-2 on a GPU whose profile is of a later generation: its products use mma.sync instructions.
  AttentionKernels attention_kernels = AttentionKernels::kNative;
  // Tokens that pass through the feed-forward network at a time during prefill, for which its activations are kept; 0:
  // all tokens of a chunk (transformers).
  std::int64_t mlp_slice = 0;
  bool quadratic_mask = false;  // a boolean S×S mask kept on the GPU (gpt-fast)
  // The scheduler reserves memory for the KV pairs of all tokens of a sequence, including those that a policy has
  // evicted or keeps elsewhere.
  bool reserve_full_cache = false;
  int max_batch = 0;  // sequences that the engine runs at a time; 0: as many as fit
  int page = 0;       // tokens per page of the cache; 0: contiguous
  // Tokens of a prefill pass, from one prompt or several; 0: whole prompts, all at once. At contexts of up to
  // `chunks_beyond` tokens no prompt is split, and a pass has as many tokens as the longest context, at least 2048.
  std::int64_t prefill_chunk = kPassTokens, chunks_beyond = 0;
  int warmup_steps = 10;     // dropped before the steady state is measured
  int measured_steps = 10;   // per context; fewer are run if they are equal or known from another context
  int sampled_contexts = 3;  // contexts at which decode is simulated, integrated over the decode length

  SchedulerRules scheduler;  // the rules of the engine's releases, for runs with traffic

  // Host time during which the device is idle, seconds; 0 for none.
  Value engine_step;      // between the last kernel of a step and the first launch of the next one
  Value engine_sequence;  // additional time per sequence of the step
  Value policy_step;      // additional time of a step for any policy except full: preparing its indices
  Value engine_layer;     // Python time per layer in addition to the host's eager_layer, for operators launched eagerly
  Value attention_plan;   // per pass whose attention covers a number of tokens that no pass before did
  Value scan_chunk;       // of a recurrence over a prompt: time of one chunk of one head; 0: no such kernels
  Value scan_channels;    // factor on scan_chunk where each channel of a key decays at a rate of its own; 0: none
  Value scan_share;       // of the memory's rate at which chunks pass through memory; 0: they stay on the chip
  Value expert_sort;      // kernels that sort a pass's tokens by their experts, per layer; 0: part of the routing
  // Until a request reaches the engine: in the front end, one request at a time, and besides.
  Value front_end_request, client_time;
  // The first run of vLLM takes this of the memory before the cache is allocated: bytes of the sampler for each logit
  // of the largest number of sequences, and those of CUDA graphs, if the release subtracts them.
  Value sampler_bytes{
      38, Origin::kLiterature, 0.1,
      "peaks in logs of vLLM: 41 (0.6, H100, Llama-3-8B: 1.26 GiB for 256 sequences), 38.6 (0.14, Qwen3-8B: 1.40 GiB), "
      "35.4 (0.19, RTX 4090, Llama-3.1-8B)"};
  Value graph_pool;
  // Bytes per cycle that an SM appends when a step copies the cache; 0: at the rate at which the memory streams.
  Value concatenate_bytes;
  // The same of keys and values that are repeated for the query heads of a group, an element-wise copy of strided
  // numbers; 0: as fast as a layout conversion.
  Value repeat_bytes;

  // Half-width, the natural logarithm of a time, of the 80 % interval for what the model leaves out, as one's own
  // measurements found it; 0: as configs/validation/intervals.yaml has it for all frameworks.
  Value left_out;
};

// A key of a framework: what reads, compares, lists and documents it.
struct FrameworkKey {
  using Member =
      std::variant<bool Framework::*, int Framework::*, std::int64_t Framework::*, Framework::Launch Framework::*,
                   Framework::AttentionKernels Framework::*, Value Framework::*>;
  const char* name;
  Member member;
  std::string_view about;                  // for the reference of keys
  int low = 0;                             // of a count
  Dimension dimension = Dimension::kNone;  // of a number with an origin
  bool is_default = false;                 // it only supplies the default of a workload's key
};
std::span<const FrameworkKey> framework_keys();

// The value of a key, without the origin of a number: "eager" for `launch`.
using FrameworkSetting = std::variant<bool, std::int64_t, double, std::string>;
FrameworkSetting setting_of(const Framework& framework, const FrameworkKey& key);

// The keys that are numbers with an origin of their own.
struct FrameworkNumber {
  const char* key;
  Value Framework::*member;
  Dimension dimension;
  double high;  // the largest value that it may have
};
const std::vector<FrameworkNumber>& framework_numbers();

// Reads a map of keys, in which every number is as in a file. Throws UserError for anything else.
Framework read_framework_keys(const Node& keys);

// Reads `framework:` of a run: a name under configs/frameworks, {name: NAME, key: value, ...}, or keys alone. A name
// with a version, such as vllm-0.9.1 or transformers-4.51-flash, selects the file that covers this version. A number is
// {value, origin, uncertainty, source}, a quantity, or a factor (x2) of the file's number; changed without an origin it
// is assumed and keeps the file's uncertainty. The file's keys for the run's model and GPU are part of the file's.
// Throws UserError for invalid input.
Framework read_framework(const Node& choice, const Model& model, const Hardware& machine);

// Tokens of a prefill pass by the framework's defaults at a context; 0: no limit.
struct PassTokens {
  std::int64_t of_prompt = 0;  // of one prompt: its chunk
  std::int64_t all = 0;        // of all its prompts
};
PassTokens pass_tokens(const Framework& framework, std::int64_t context);

// Returns the path of the file that a name selects; throws UserError with the known names if there is none.
std::string find_framework(const std::string& name, const SourceLocation& where);

// A file of configs/frameworks, for readers of such files.
struct FrameworkFile {
  std::string name, title, source;
  std::string like;          // the file whose keys it takes over except for those that it writes itself; or empty
  std::string from, before;  // versions that it covers; empty: unbounded
  Node keys;        // as a run may write them, those of `like` included; without keys for particular models or GPUs
  Node for_models;  // list of {models: [...], keys}, its own or that of `like`; null if neither has one
  Node for_gpus;    // the same with {gpus: [...], keys}, merged after those for models
};
// Throws UserError for invalid files, and for files that are like each other.
FrameworkFile read_framework_file(const std::string& path);

// Throws UserError for a name in for_models or for_gpus that no file of configs/models or configs/hardware matches. A
// run accepts it, as its model or machine may be a file elsewhere.
void refuse_unmatched_names(const FrameworkFile& file);

// All inputs of a prediction, as text: the key of its results.
std::string canonical(const Framework& framework);

}  // namespace kvcast::config
