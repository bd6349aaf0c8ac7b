// How a serving framework runs the model: what the host does between kernels and between steps, and which operators it
// launches. Frameworks are files under configs/frameworks; a run names one and may change its keys.
#pragma once

#include <string>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "config/model.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

struct Framework {
  enum class Launch { kCudaGraph, kCompiled, kEager };
  enum class AttentionKernels { kNative, kFlash2 };

  std::string name;  // of the file, with what the run changes of it; empty where the run names none
  Launch launch = Launch::kCudaGraph;
  bool expand_kv_heads = false;  // K and V repeated to all query heads in memory before attention
  // Every query head reads its KV head anew: what Inductor generates for attention by the math backend (gpt-fast).
  bool reread_kv_heads = false;
  // What kernels of serving systems fuse runs as the framework's own operators: norms, RoPE, projections, activations,
  // a policy's scores and merges (Hugging Face transformers).
  bool unfused = false;
  // Selections of the best run as torch.topk (see lower/torch_topk.hpp), not as one kernel made for it.
  bool torch_topk = false;
  // Attention as separate operators whose scores lie in memory (Hugging Face transformers, attn_implementation eager).
  bool eager_attention = false;
  // A step copies the layer's cache to append to it (torch.cat of transformers' DynamicCache); for policies that attend
  // to all they hold.
  bool concatenate_cache = false;
  // FlashAttention-2 on a GPU whose profile has a later generation: its products use mma.sync instructions.
  AttentionKernels attention_kernels = AttentionKernels::kNative;
  // Tokens that pass through the feed-forward network at a time while a prompt is read: its activations are held for
  // so many; 0: all of a chunk (transformers).
  std::int64_t mlp_slice = 0;
  bool quadratic_mask = false;  // a boolean S×S mask kept on the GPU (gpt-fast)
  int max_batch = 0;            // sequences that the engine runs at a time; 0: as many as fit
  int page = 0;                 // tokens of a page of the cache; 0: in one piece
  int warmup_steps = 10;        // dropped before the steady state is measured
  int measured_steps = 10;      // at a context; fewer are run where they are the same or are known from another context
  int sampled_contexts = 3;     // contexts at which decode is simulated, integrated over the decode length

  // Host time in which the device has nothing to do, seconds; a value of 0 is none.
  Value engine_step;      // between the last kernel of a step and the first launch of the next one
  Value engine_sequence;  // more for each sequence of the step
  Value engine_layer;  // Python more for each layer than the host's eager_layer, where operators are launched eagerly
  // Bytes that an SM appends a cycle where a step copies the cache; 0: as fast as the memory streams.
  Value concatenate_bytes;
};

// The numbers of a framework that have an origin of their own, by key ("engine_step").
struct FrameworkNumber {
  const char* key;
  Value Framework::*member;
  Dimension dimension;
};
const std::vector<FrameworkNumber>& framework_numbers();

// `framework:` of a run: a name under configs/frameworks, {name: NAME, key: value, ...}, or keys alone. A name with a
// version, such as vllm-0.9.1 or transformers-4.51-flash, means the file that stands for this version. A number is
// {value, origin, uncertainty, source}, a quantity, or a factor (x2) of the file's; changed without an origin it is
// assumed, as uncertain as the file's. UserError for anything odd.
Framework read_framework(const Node& choice, const Model& model);

// The path of the file that a name means; UserError with what is known where there is none.
std::string find_framework(const std::string& name, const SourceLocation& where);

// A file of configs/frameworks, for readers.
struct FrameworkFile {
  std::string name, title, source;
  std::string from, before;  // versions that it stands for; empty: no bound
  Node keys;                 // as a run may write them; without what is for some models alone
  Node for_models;           // list of {models: [...], keys}; null without
};
FrameworkFile read_framework_file(const std::string& path);

// "eager".
const char* launch_name(Framework::Launch launch);

// All that a prediction can depend on, as text: what results are keyed by.
std::string canonical(const Framework& framework);

}  // namespace kvcast::config
