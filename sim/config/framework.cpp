#include "config/framework.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <regex>

#include "config/find.hpp"
#include "config/prompt_chunk.hpp"
#include "config/section.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

constexpr const char* kLaunches[] = {"cuda_graph", "compiled", "eager"};
constexpr const char* kAttentionKernels[] = {"native", "flash_2"};

const FrameworkNumber* number_named(std::string_view key) {
  for (const FrameworkNumber& n : framework_numbers()) {
    if (n.key == key) return &n;
  }
  return nullptr;
}

double most(const FrameworkNumber& n) { return n.dimension == Dimension::kSeconds ? 1 : 1024; }

// Converts a number as a run writes it to the form of a file: a quantity or a factor keeps the uncertainty of the
// file's number.
Node changed_number(const FrameworkNumber& n, const Node& written, const Node* base) {
  const std::string what = fmt::format("framework.{}", n.key);
  std::optional<Value> there;
  if (base != nullptr) {
    Section section(Node::map({{n.key, *base}}, base->where()), "framework");
    there = section.value(n.key, n.dimension, 0, most(n));
  }
  const bool map = written.kind() == Node::Kind::kMap;
  const Node* const amount = map ? written.find("value") : &written;
  Node whole = base != nullptr ? *base : Node::map({}, written.where());
  if (amount != nullptr) {
    if (!there && read_factor(*amount, what)) {
      throw UserError(amount->where(), fmt::format("{}: a factor needs a framework by name that states it", what));
    }
    const double value = read_change(*amount, what, n.dimension, 0, most(n), there ? there->value : 0);
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

Framework read_keys(Section section) {
  Framework f;
  const auto at = [](const auto& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) - std::begin(names);
  };
  const std::string launch = section.choice("launch", {std::begin(kLaunches), std::end(kLaunches)}, "cuda_graph");
  f.launch = static_cast<Framework::Launch>(at(kLaunches, launch));
  f.expand_kv_heads = section.flag("expand_kv_heads", f.expand_kv_heads);
  f.reread_kv_heads = section.flag("reread_kv_heads", f.reread_kv_heads);
  if (f.expand_kv_heads && f.reread_kv_heads) {
    throw UserError(section.where("reread_kv_heads"),
                    "framework: expand_kv_heads and reread_kv_heads are alternatives: give one");
  }
  f.unfused = section.flag("unfused", f.unfused);
  f.torch_topk = section.flag("torch_topk", f.torch_topk);
  f.eager_attention = section.flag("eager_attention", f.eager_attention);
  f.concatenate_cache = section.flag("concatenate_cache", f.concatenate_cache);
  f.layer_sync = section.flag("layer_sync", f.layer_sync);
  const std::string kernels =
      section.choice("attention_kernels", {std::begin(kAttentionKernels), std::end(kAttentionKernels)}, "native");
  f.attention_kernels = static_cast<Framework::AttentionKernels>(at(kAttentionKernels, kernels));
  f.mlp_slice = section.integer("mlp_slice", 0, kMaxTokens, f.mlp_slice);
  f.quadratic_mask = section.flag("quadratic_mask", f.quadratic_mask);
  f.reserve_full_cache = section.flag("reserve_full_cache", f.reserve_full_cache);
  const auto count = [&](std::string_view key, int low, int fallback) {
    return static_cast<int>(section.integer(key, low, 1'000'000, fallback));
  };
  f.selection_operators = count("selection_operators", 0, f.selection_operators);
  f.max_batch = count("max_batch", 0, f.max_batch);
  f.page = count("page", 0, f.page);
  section.integer("prefill_chunk", 0, kMaxTokens, 0);  // range and default of default_chunk
  section.integer("chunks_beyond", 0, kMaxTokens, 0);
  f.warmup_steps = count("warmup_steps", 0, f.warmup_steps);
  f.measured_steps = count("measured_steps", 1, f.measured_steps);
  f.sampled_contexts = count("sampled_contexts", 1, f.sampled_contexts);
  for (const FrameworkNumber& n : framework_numbers()) {
    if (section.has(n.key)) f.*n.member = section.value(n.key, n.dimension, 0, most(n));
  }
  section.finish();
  return f;
}

}  // namespace

const std::vector<FrameworkNumber>& framework_numbers() {
  static const std::vector<FrameworkNumber> all = {
      {"engine_step", &Framework::engine_step, Dimension::kSeconds},
      {"engine_sequence", &Framework::engine_sequence, Dimension::kSeconds},
      {"policy_step", &Framework::policy_step, Dimension::kSeconds},
      {"engine_layer", &Framework::engine_layer, Dimension::kSeconds},
      {"concatenate_bytes", &Framework::concatenate_bytes, Dimension::kBytes},
      {"repeat_bytes", &Framework::repeat_bytes, Dimension::kBytes}};
  return all;
}

const char* launch_name(Framework::Launch launch) { return kLaunches[static_cast<int>(launch)]; }

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

FrameworkFile read_framework_file(const std::string& path) {
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
  file.keys = whole.without({"title", "source", "versions", "for_models"});
  if (const auto list = section.optional_node("for_models")) {
    if (list->kind() != Node::Kind::kList) {
      throw UserError(list->where(), "for_models: expected a list of maps, found " + describe(*list));
    }
    file.for_models = *list;
  }
  read_keys(Section(file.keys, "framework"));
  return file;
}

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

std::int64_t default_chunk(const Node& choice, std::int64_t context) {
  const bool is_map = choice.kind() == Node::Kind::kMap;
  const Node* const name = is_map ? choice.find("name") : &choice;
  Node keys = Node::map({}, choice.where());
  if (name != nullptr) keys = read_framework_file(find_framework(read_text(*name, "framework"), name->where())).keys;
  const auto number = [&](const char* key) -> std::int64_t {
    const Node* const written = is_map ? choice.find(key) : nullptr;
    const Node* const node = written != nullptr ? written : keys.find(key);
    return node == nullptr ? 0 : read_integer(*node, key, 0, kMaxTokens);
  };
  return context > number("chunks_beyond") ? number("prefill_chunk") : 0;
}

std::string canonical(const Framework& f) {
  std::string text = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", f.name, static_cast<int>(f.launch), f.expand_kv_heads,
      f.reread_kv_heads, f.unfused, f.torch_topk, f.selection_operators, f.eager_attention, f.concatenate_cache,
      f.layer_sync, static_cast<int>(f.attention_kernels), f.mlp_slice, f.quadratic_mask, f.reserve_full_cache,
      f.max_batch, f.page, f.warmup_steps, f.measured_steps, f.sampled_contexts);
  for (const FrameworkNumber& n : framework_numbers()) {
    const Value& v = f.*n.member;
    text += fmt::format("\n{} {} {} {} {}", n.key, v.value, origin_name(v.origin), v.uncertainty, v.source);
  }
  return text;
}

}  // namespace kvcast::config
