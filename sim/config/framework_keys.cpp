// The keys of a framework: one table from which they are read, listed, compared and documented.
#include <algorithm>
#include <type_traits>

#include "config/framework.hpp"
#include "config/keys.hpp"

namespace kvcast::config {
namespace {

constexpr const char* kLaunches[] = {"cuda_graph", "compiled", "eager"};
constexpr const char* kAttentionKernels[] = {"native", "flash_2"};

constexpr FrameworkKey kFrameworkKeys[] = {
    {"launch", &Framework::launch,
     "`cuda_graph`, `compiled` (one launch per kernel) or `eager` (one Python operator per kernel, plus overhead per "
     "layer)"},
    {"reread_kv_heads", &Framework::reread_kv_heads,
     "every query head reads its KV head separately (gpt-fast: Inductor's code for the math backend of attention)"},
    {"separate_query_heads", &Framework::separate_query_heads,
     "kernels of decode attention run one query head at a time, so that the heads of a group read their KV head from "
     "the L2 (PagedAttention of vLLM, TensorRT-LLM before its XQA kernels)"},
    {"expand_kv_heads", &Framework::expand_kv_heads,
     "keys and values are copied to all query heads before attention, which then runs as multi-head attention "
     "(`repeat_kv` before a library's attention)"},
    {"unfused", &Framework::unfused,
     "separate operators for norms, RoPE, projections and activations, for a policy's scores and merges, and for the "
     "work of `generate` between steps, with `launch: eager` (Hugging Face transformers)"},
    {"torch_topk", &Framework::torch_topk,
     "selections run as torch.topk: two bits of a score per pass, or eight over several blocks in a dozen kernels, "
     "and a sort"},
    {"selection_operators", &Framework::selection_operators,
     "kernels around each top-k of a policy in addition to those of its definition; each reads and writes the scores "
     "once (engines whose code for a policy is a chain of operators)"},
    {"eager_attention", &Framework::eager_attention,
     "attention as separate operators: 32 bytes of traffic per score (34 in prompts) and 10 of memory (transformers, "
     "`attn_implementation=\"eager\"`)"},
    {"concatenate_cache", &Framework::concatenate_cache,
     "a step copies the cache to append to it (transformers' DynamicCache)"},
    {"unpack_operators", &Framework::unpack_operators,
     "operators that unpack the whole of a quantised cache into 16-bit numbers in each step, before attention "
     "(transformers' QuantizedCache: 4, exllamav2: 1); 0: attention kernels unpack what they read"},
    {"flatten_prompt", &Framework::flatten_prompt,
     "before the attention of each prompt chunk one kernel unpacks a quantised cache, the chunk's own tokens included "
     "(LMDeploy)"},
    {"prompt_logits", &Framework::prompt_logits,
     "the head computes logits of every token of the prompt, in 16 bits and again in single precision (transformers "
     "before 4.45)"},
    {"layer_sync", &Framework::layer_sync,
     "a scalar is read back in each layer of a step, so that the host launches no layer ahead (kvpress, whose hooks "
     "compare a position on the device)"},
    {"attention_kernels", &Framework::attention_kernels,
     "`native`: the kernels that the profile was fitted to, or `flash_2`, whose rate is `flash2_efficiency` (older "
     "releases on Hopper)"},
    {"mlp_slice", &Framework::mlp_slice,
     "tokens that pass through the feed-forward network at a time in the prefill, for which its activations are kept; "
     "0: all tokens of a chunk (systems that prefill long prompts on small GPUs)"},
    {"quadratic_mask", &Framework::quadratic_mask, "a boolean mask of S × S bytes stays on the GPU (gpt-fast)"},
    {"reserve_full_cache", &Framework::reserve_full_cache,
     "the scheduler reserves memory for the KV pairs of all tokens of a sequence, including those that a policy has "
     "evicted or keeps elsewhere: eviction then makes steps shorter but batches no larger (TensorRT-LLM, whose "
     "scheduler guarantees that a running sequence can finish)"},
    {"max_batch", &Framework::max_batch,
     "sequences that the engine runs at a time, 0: as many as fit; a larger batch is rejected, and searches over "
     "batches (`largest`, `choose`, `map`, `break_even`) end there (vLLM's `max_num_seqs`)"},
    {"page", &Framework::page,
     "tokens per page of the cache, 0: contiguous; the last page is allocated whole, and pages of fewer than 16 "
     "tokens are gathered as pieces of their size"},
    {"prefill_chunk", &Framework::prefill_chunk,
     "prefill chunk at contexts of more than `chunks_beyond` tokens, if `workload.prefill_chunk` is not set", 0,
     Dimension::kNone, true},
    {"chunks_beyond", &Framework::chunks_beyond, "longest context in tokens that is prefilled without chunks", 0,
     Dimension::kNone, true},
    {"warmup_steps", &Framework::warmup_steps,
     "maximum number of steps before those that are measured at a context. One is used; all of "
     "them only for policies whose steps wait for work of the step before, if work is left over from step to step"},
    {"measured_steps", &Framework::measured_steps,
     "maximum number of steps measured at the middle context, two if all steps do the same work; at other contexts two "
     "of the same drawn steps are measured. Up to 32 represent one context; more are consecutive steps of a growing "
     "context",
     1},
    {"sampled_contexts", &Framework::sampled_contexts,
     "contexts from the first to the last generated token at which decoding is simulated", 1},
    {"engine_step", &Framework::engine_step,
     "host time between two steps during which the device waits: scheduling, inputs, sampling, detokenising", 0,
     Dimension::kSeconds},
    {"engine_sequence", &Framework::engine_sequence, "additional time between two steps for each sequence", 0,
     Dimension::kSeconds},
    {"policy_step", &Framework::policy_step,
     "additional host time between two steps with any policy except `full`: preparing the policy's indices "
     "(TensorRT-LLM's sparse attention)",
     0, Dimension::kSeconds},
    {"engine_layer", &Framework::engine_layer,
     "Python time per layer in addition to the host's `eager_layer`, with `launch: eager`: modules and custom "
     "operators",
     0, Dimension::kSeconds},
    {"attention_plan", &Framework::attention_plan,
     "host time of a pass whose attention covers a number of tokens not seen before, for which cuDNN plans a new "
     "kernel; steps of policies that always attend to the same number do not pay it",
     0, Dimension::kSeconds},
    {"expert_sort", &Framework::expert_sort,
     "time per layer of the kernels that sort a pass's tokens by their experts, which wait for each other and hardly "
     "depend on the number of tokens",
     0, Dimension::kSeconds},
    {"scan_chunk", &Framework::scan_chunk,
     "layers with a recurrence: time that a head's kernel takes for one chunk of a prompt, which waits for the chunk "
     "before; without this key the framework does not run such models",
     0, Dimension::kSeconds},
    {"scan_channels", &Framework::scan_channels,
     "factor on `scan_chunk` for a recurrence whose channels decay at rates of their own (Kimi delta attention); "
     "without this key the time is the same",
     0, Dimension::kFraction},
    {"scan_share", &Framework::scan_share,
     "share of the memory's bandwidth that these kernels reach if chunks and states pass through memory between "
     "several of them; without this key one kernel keeps them on the chip",
     0, Dimension::kFraction},
    {"front_end_request", &Framework::front_end_request,
     "with `traffic:`, time that HTTP and tokenising of a request take before it reaches the engine, one request at a "
     "time; part of its time to first token",
     0, Dimension::kSeconds},
    {"client_time", &Framework::client_time, "the same that holds up no other request, such as the network's", 0,
     Dimension::kSeconds},
    {"sampler_bytes", &Framework::sampler_bytes,
     "with `traffic:` and vLLM's scheduler, bytes that the sampler takes for each logit of `max_num_seqs` rows in the "
     "run that decides what memory is left for the cache; 38 unless written",
     0, Dimension::kBytes},
    {"graph_pool", &Framework::graph_pool,
     "likewise, bytes of CUDA graphs that the engine leaves for them on each GPU (vLLM from 0.21)", 0,
     Dimension::kBytes},
    {"concatenate_bytes", &Framework::concatenate_bytes,
     "bytes per cycle that an SM appends when the cache is copied: PyTorch's torch.cat moves one element per "
     "instruction; without this key the memory is the bottleneck",
     0, Dimension::kBytes},
    {"repeat_bytes", &Framework::repeat_bytes,
     "the same for repeated KV heads, an element-wise copy of strided numbers; without this key it runs as a layout "
     "conversion",
     0, Dimension::kBytes},
    {"left_out", &Framework::left_out,
     "half-width (natural logarithm of a time) of 80 % intervals for what the model leaves out, from measurements of "
     "this framework on this machine (`kvcast calibrate steps`), in place of those of all frameworks and of machines "
     "without a fit",
     0, Dimension::kFraction}};

// The largest count of a key. Every step that is simulated takes time and memory: 4096 steps of an engine that launches
// operators eagerly take about a GB.
std::int64_t most(int Framework::*count) {
  if (count == &Framework::warmup_steps || count == &Framework::measured_steps) return 4096;
  return count == &Framework::sampled_contexts ? 1024 : 1'000'000;
}

// Returns the key in the form in which every table states its keys.
template <class T>
Key<Framework> row_of(const FrameworkKey& key, T Framework::*member) {
  Key<Framework> row{key.name, own<Framework>(type_of<T>()), key.about};
  if constexpr (std::is_same_v<T, Framework::Launch>) row.slot.names = among<kLaunches>(row.slot).names;
  if constexpr (std::is_same_v<T, Framework::AttentionKernels>)
    row.slot.names = among<kAttentionKernels>(row.slot).names;
  if constexpr (std::is_same_v<T, int>) row.slot.limits = {double(key.low), double(most(member))};
  if constexpr (std::is_same_v<T, std::int64_t>) row.slot.limits = {double(key.low), kMaxTokens};
  if constexpr (std::is_same_v<T, Value>) {
    const double high = member == &Framework::graph_pool ? 1e12 : key.dimension == Dimension::kSeconds ? 1 : 1024;
    row.slot.limits = {0, high, key.dimension};
  }
  return row;
}

}  // namespace

std::span<const FrameworkKey> framework_keys() { return kFrameworkKeys; }

FrameworkSetting setting_of(const Framework& framework, const FrameworkKey& key) {
  const auto read = [&](auto member) -> FrameworkSetting {
    const auto& value = framework.*member;
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_integral_v<T>) {
      return std::int64_t{value};
    } else if constexpr (std::is_enum_v<T>) {
      return *text_of(row_of(key, member), value);
    } else {
      return value.value;
    }
  };
  return std::visit(read, key.member);
}

const std::vector<FrameworkNumber>& framework_numbers() {
  static const std::vector<FrameworkNumber> all = [] {
    std::vector<FrameworkNumber> numbers;
    for (const FrameworkKey& key : framework_keys()) {
      const auto* const member = std::get_if<Value Framework::*>(&key.member);
      if (member != nullptr)
        numbers.push_back({key.name, *member, key.dimension, row_of(key, *member).slot.limits.high});
    }
    return numbers;
  }();
  return all;
}

Framework read_framework_keys(const Node& keys) {
  Section section(keys, "framework");
  Framework f;
  for (const FrameworkKey& key : framework_keys()) {
    std::visit([&](auto member) { read_key(section, row_of(key, member), f.*member); }, key.member);
  }
  if (f.expand_kv_heads && f.reread_kv_heads) {
    throw UserError(section.where("reread_kv_heads"),
                    "framework: expand_kv_heads and reread_kv_heads are alternatives: give one");
  }
  if (section.has("scheduler")) f.scheduler = read_scheduler(section.section("scheduler", "scheduler"));
  section.finish();
  return f;
}

Shapes framework_shapes() {
  std::vector<KeyShape> shapes;
  const auto add = [&](const FrameworkKey& key, auto member) {
    const Key<Framework> row = row_of(key, member);
    shapes.push_back(shape_of(row));
    shapes.back().fallback = text_of(row, Framework().*member);
  };
  for (const FrameworkKey& key : framework_keys()) std::visit([&](auto member) { add(key, member); }, key.member);
  shapes.push_back(
      {.key = "scheduler",
       .type = KeyShape::Type::kMap,
       .about = "the scheduler's rules for runs with `traffic:`, with the keys of the run's `scheduler:`"});
  return {{"framework", std::move(shapes)}};
}

std::string canonical(const Framework& f) {
  std::string text = f.name;
  for (const FrameworkKey& key : framework_keys()) {
    std::visit([&](const auto& value) { text += fmt::format("\n{} {}", key.name, value); }, setting_of(f, key));
  }
  for (const FrameworkNumber& n : framework_numbers()) {
    const Value& v = f.*n.member;
    text += fmt::format("\n{} {} {} {}", n.key, origin_name(v.origin), v.uncertainty, v.source);
  }
  return text + "\n" + canonical(f.scheduler);
}

}  // namespace kvcast::config
