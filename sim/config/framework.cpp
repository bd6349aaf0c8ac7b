#include "config/framework.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <regex>
#include <type_traits>

#include "config/find.hpp"
#include "config/section.hpp"
#include "config/text.hpp"

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
     "attention as separate operators: 24 bytes of traffic and 8 of memory per score (transformers, "
     "`attn_implementation=\"eager\"`)"},
    {"concatenate_cache", &Framework::concatenate_cache,
     "a step copies the cache to append to it (transformers' DynamicCache)"},
    {"layer_sync", &Framework::layer_sync,
     "a scalar is read back in each layer of a step, so that the host launches no layer ahead (kvpress, whose hooks "
     "compare a position on the device)"},
    {"attention_kernels", &Framework::attention_kernels,
     "`native`: the kernels that the profile was fitted to, or `flash_2`, whose rate is `flash2_efficiency` (older "
     "releases on Hopper)"},
    {"mlp_slice", &Framework::mlp_slice,
     "tokens that pass through the feed-forward network at a time in the prefill, for which its activations are "
     "kept; "
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
     "maximum number of steps before those that are measured at a context. One is used for policies none of whose "
     "steps waits for work of the step before, two for others unless work is left over from step to step"},
    {"measured_steps", &Framework::measured_steps,
     "maximum number of steps measured at a context: two if all do the same work, and two of the same drawn steps at "
     "each context except the middle one. Up to 32 represent one context; more are consecutive steps of a growing "
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
    {"expert_sort", &Framework::expert_sort,
     "time per layer of the kernels that sort a pass's tokens by their experts, which wait for each other and hardly "
     "depend on the number of tokens",
     0, Dimension::kSeconds},
    {"concatenate_bytes", &Framework::concatenate_bytes,
     "bytes per cycle that an SM appends when the cache is copied: PyTorch's torch.cat moves one element per "
     "instruction; without this key the memory is the bottleneck",
     0, Dimension::kBytes},
    {"repeat_bytes", &Framework::repeat_bytes,
     "the same for repeated KV heads, an element-wise copy of strided numbers; without this key it runs as a layout "
     "conversion",
     0, Dimension::kBytes}};

const FrameworkNumber* number_named(std::string_view key) {
  for (const FrameworkNumber& n : framework_numbers()) {
    if (n.key == key) return &n;
  }
  return nullptr;
}

double most(Dimension dimension) { return dimension == Dimension::kSeconds ? 1 : 1024; }

// Converts a number as a run writes it to the form of a file: a quantity or a factor keeps the uncertainty of the
// file's number.
Node changed_number(const FrameworkNumber& n, const Node& written, const Node* base) {
  const std::string what = fmt::format("framework.{}", n.key);
  std::optional<Value> there;
  if (base != nullptr) {
    Section section(Node::map({{n.key, *base}}, base->where()), "framework");
    there = section.value(n.key, n.dimension, 0, most(n.dimension));
  }
  const bool map = written.kind() == Node::Kind::kMap;
  const Node* const amount = map ? written.find("value") : &written;
  Node whole = base != nullptr ? *base : Node::map({}, written.where());
  if (amount != nullptr) {
    if (!there && read_factor(*amount, what)) {
      throw UserError(amount->where(), fmt::format("{}: a factor needs a framework by name that states it", what));
    }
    const double value = read_change(*amount, what, n.dimension, 0, most(n.dimension), there ? there->value : 0);
    const auto put = [&](const char* key, const std::string& text) {
      whole = whole.with(key, Node::scalar(text, amount->where()));
    };
    put("value", fmt::format("{:.17g} {}", value, n.dimension == Dimension::kSeconds ? "s" : "B"));
    put("origin", "assumed");
    put("source", fmt::format("{} as the run sets it", what));
    if (!there) put("uncertainty", "0 %");
  }
  if (!map) return whole;
  for (const auto& [key, value] : written.entries()) {
    if (key != "value") whole = whole.with(key, value);
  }
  return whole;
}

// Merges `over` into the keys of a file; numbers as in changed_number.
Node laid_over(Node keys, const Node& over) {
  for (const auto& [key, value] : over.entries()) {
    const FrameworkNumber* const number = number_named(key);
    const Node* const base = keys.find(key);
    keys = number == nullptr ? keys.with(key, value) : keys.with(key, changed_number(*number, value, base));
  }
  return keys;
}

// Returns whether a name in a list matches a model: it is the model's name, or a prefix followed by *.
bool holds_for(const std::string& pattern, const std::string& model) {
  if (!pattern.ends_with("*")) return pattern == model;
  return model.starts_with(pattern.substr(0, pattern.size() - 1));
}

// Returns the file's keys for this model.
Node keys_for(const FrameworkFile& file, const Model& model) {
  Node keys = file.keys;
  if (file.for_models.kind() == Node::Kind::kNull) return keys;
  for (const Node& item : file.for_models.items()) {
    Section section(item, "for_models");
    const std::vector<std::string> models = section.texts("models");
    const bool holds = std::any_of(models.begin(), models.end(),
                                   [&](const std::string& pattern) { return holds_for(pattern, model.name); });
    if (holds) keys = laid_over(keys, item.without({"models"}));
  }
  return keys;
}

using Version = std::vector<int>;

Version version_of(const std::string& text) {
  Version version;
  for (const char* at = text.c_str(); *at != '\0'; at += *at == '.' ? 1 : 0) {
    char* end = nullptr;
    version.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = end;
  }
  return version;
}

// Splits a name into the name without its version, and the version: {"transformers-flash", "4.51"}.
std::pair<std::string, std::string> split_name(const std::string& name) {
  static const std::regex pattern("-([0-9]{1,6}(?:\\.[0-9]{1,6}){0,3})(?=-|$)");
  std::smatch found;
  if (!std::regex_search(name, found, pattern)) return {name, ""};
  return {found.prefix().str() + found.suffix().str(), found[1].str()};
}

// Describes the changes that a run makes: "engine_step 2 ms, page 32".
std::string changes_text(const Node& over) {
  std::string text;
  for (const auto& [key, value] : over.entries()) {
    const bool plain = value.kind() == Node::Kind::kScalar;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, plain ? value.text() : value.canonical());
  }
  return text;
}

template <typename Names>
std::vector<std::string> texts_of(const Names& names) {
  return {std::begin(names), std::end(names)};
}

// Reads one of `names` into an enumeration that numbers them.
template <typename Enum, typename Names>
Enum read_choice(Section& section, const KeyName& key, const Names& names, Enum fallback) {
  const std::string text = section.choice(key, texts_of(names), names[static_cast<int>(fallback)]);
  return static_cast<Enum>(std::find(std::begin(names), std::end(names), text) - std::begin(names));
}

void read_key(Section& section, const FrameworkKey& key, Framework& f) {
  constexpr std::int64_t kMostCount = 1'000'000;
  const KeyName name(key.name, key.about);
  const auto read = [&](auto member) {
    auto& value = f.*member;
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>) {
      value = section.flag(name, value);
    } else if constexpr (std::is_same_v<T, int>) {
      value = static_cast<int>(section.integer(name, key.low, kMostCount, value));
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      value = section.integer(name, key.low, kMaxTokens, value);
    } else if constexpr (std::is_same_v<T, Framework::Launch>) {
      value = read_choice(section, name, kLaunches, value);
    } else if constexpr (std::is_same_v<T, Framework::AttentionKernels>) {
      value = read_choice(section, name, kAttentionKernels, value);
    } else if (section.has(key.name)) {
      value = section.value(name, key.dimension, 0, most(key.dimension));
    }
  };
  std::visit(read, key.member);
}

Framework read_keys(Section section) {
  Framework f;
  for (const FrameworkKey& key : framework_keys()) read_key(section, key, f);
  if (f.expand_kv_heads && f.reread_kv_heads) {
    throw UserError(section.where("reread_kv_heads"),
                    "framework: expand_kv_heads and reread_kv_heads are alternatives: give one");
  }
  section.finish();
  return f;
}

// `below`: the files that take over this one's keys.
FrameworkFile read_file(const std::string& path, std::vector<std::string> below) {
  const Node whole = load_yaml(path);
  Section section(whole, "framework file");
  FrameworkFile file;
  file.name = std::filesystem::path(path).stem().string();
  file.title = section.text("title");
  file.source = section.text("source");
  if (section.has("versions")) {
    Section versions = section.section("versions", "versions");
    file.from = versions.text("from", ""), file.before = versions.text("before", "");
    versions.finish();
  }
  file.keys = whole.without({"title", "source", "like", "versions", "for_models"});
  if (const auto list = section.optional_node("for_models")) {
    if (list->kind() != Node::Kind::kList) {
      throw UserError(list->where(), "for_models: expected a list of maps, found " + describe(*list));
    }
    file.for_models = *list;
  }
  if (section.has("like")) {
    file.like = section.text("like");
    const std::string base_path = find_config("frameworks", file.like, section.where("like"));
    below.push_back(path);
    if (std::find(below.begin(), below.end(), base_path) != below.end()) {
      throw UserError(section.where("like"), fmt::format("like: \"{}\" is like this file", file.like));
    }
    const FrameworkFile base = read_file(base_path, std::move(below));
    file.keys = laid_over(base.keys, file.keys);
    if (file.for_models.kind() == Node::Kind::kNull) file.for_models = base.for_models;
  }
  read_keys(Section(file.keys, "framework"));
  return file;
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
    } else if constexpr (std::is_same_v<T, Framework::Launch>) {
      return std::string(kLaunches[static_cast<int>(value)]);
    } else if constexpr (std::is_same_v<T, Framework::AttentionKernels>) {
      return std::string(kAttentionKernels[static_cast<int>(value)]);
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
      if (member != nullptr) numbers.push_back({key.name, *member, key.dimension});
    }
    return numbers;
  }();
  return all;
}

std::string find_framework(const std::string& name, const SourceLocation& where) {
  if (const auto path = find_config_if_any("frameworks", name, where)) return *path;
  const auto [family, version] = split_name(name);
  std::vector<std::string> known;
  for (const std::string& path : config_files("frameworks")) {
    const FrameworkFile file = read_framework_file(path);
    known.push_back(file.name);
    if (version.empty() || split_name(file.name).first != family) continue;
    const Version asked = version_of(version);
    const bool early = !file.from.empty() && asked < version_of(file.from);
    const bool late = !file.before.empty() && asked >= version_of(file.before);
    if (!early && !late) return path;
  }
  const std::string why = version.empty() ? "" : fmt::format(", and no file of \"{}\" covers this version", family);
  throw UserError(
      where,
      fmt::format("nothing named \"{}\" under configs/frameworks{}{}", shorten(name),
                  std::find(known.begin(), known.end(), family) == known.end() ? "" : why, did_you_mean(name, known)),
      known);
}

FrameworkFile read_framework_file(const std::string& path) { return read_file(path, {}); }

Framework read_framework(const Node& choice, const Model& model) {
  const bool is_map = choice.kind() == Node::Kind::kMap;
  if (!is_map && choice.kind() != Node::Kind::kScalar) {
    throw UserError(choice.where(), "framework: expected a name or a map, found " + describe(choice));
  }
  const Node* const name = is_map ? choice.find("name") : &choice;
  const Node over = is_map ? choice.without({"name"}) : Node::map({}, choice.where());
  Node keys = Node::map({}, choice.where());
  Framework framework;
  std::string title;
  if (name != nullptr) {
    const std::string path = find_framework(read_text(*name, "framework"), name->where());
    const FrameworkFile file = read_framework_file(path);
    keys = keys_for(file, model), title = file.name;
  }
  framework = read_keys(Section(laid_over(keys, over), "framework"));
  framework.name = title;
  if (!title.empty() && !over.entries().empty()) framework.name += fmt::format(" ({})", changes_text(over));
  return framework;
}

std::int64_t default_chunk(const Framework& framework, std::int64_t context) {
  return context > framework.chunks_beyond ? framework.prefill_chunk : 0;
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
  return text;
}

}  // namespace kvcast::config
