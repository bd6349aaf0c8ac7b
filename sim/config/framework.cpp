#include "config/framework.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <regex>

#include "config/find.hpp"
#include "config/section.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

const FrameworkNumber* number_named(std::string_view key) {
  for (const FrameworkNumber& n : framework_numbers()) {
    if (n.key == key) return &n;
  }
  return nullptr;
}

// Converts a number as a run writes it to the form of a file: a quantity or a factor keeps the uncertainty of the
// file's number. `by`: who writes it.
Node changed_number(const FrameworkNumber& n, const Node& written, const Node* base, const std::string& by) {
  const std::string what = fmt::format("framework.{}", n.key);
  std::optional<Value> there;
  if (base != nullptr) {
    Section section(Node::map({{n.key, *base}}, base->where()), "framework");
    there = section.value(n.key, n.dimension, 0, n.high);
  }
  const bool map = written.kind() == Node::Kind::kMap;
  const Node* const amount = map ? written.find("value") : &written;
  Node whole = base != nullptr ? *base : Node::map({}, written.where());
  if (amount != nullptr) {
    if (!there && read_factor(*amount, what)) {
      throw UserError(amount->where(), fmt::format("{}: a factor needs a framework by name that states it", what));
    }
    const double value = read_change(*amount, what, n.dimension, 0, n.high, there ? there->value : 0);
    const auto put = [&](const char* key, const std::string& text) {
      whole = whole.with(key, Node::scalar(text, amount->where()));
    };
    const char* const unit = n.dimension == Dimension::kSeconds ? " s" : n.dimension == Dimension::kBytes ? " B" : "";
    put("value", fmt::format("{:.17g}{}", value, unit));
    put("origin", "assumed");
    put("source", fmt::format("{} as {} sets it", what, by));
    if (!there) put("uncertainty", "0 %");
  }
  if (!map) return whole;
  for (const auto& [key, value] : written.entries()) {
    if (key != "value") whole = whole.with(key, value);
  }
  return whole;
}

Node merged_maps(Node map, const Node& over) {
  if (map.kind() != Node::Kind::kMap || over.kind() != Node::Kind::kMap) return over;
  for (const auto& [key, value] : over.entries()) map = map.with(key, value);
  return map;
}

// Merges `over` into the keys of a file; numbers as in changed_number.
Node laid_over(Node keys, const Node& over, const std::string& by) {
  for (const auto& [key, value] : over.entries()) {
    const FrameworkNumber* const number = number_named(key);
    const Node* const base = keys.find(key);
    if (key == "scheduler" && base != nullptr) {
      keys = keys.with(key, merged_maps(*base, value));
      continue;
    }
    keys = number == nullptr ? keys.with(key, value) : keys.with(key, changed_number(*number, value, base, by));
  }
  return keys;
}

// The lists of a framework file that contain keys for some runs only.
struct Conditional {
  const char* list;   // the key of the file
  const char* names;  // the key of an item that says where its other keys apply
  Node FrameworkFile::*member;
};
constexpr Conditional kForModels{"for_models", "models", &FrameworkFile::for_models};
constexpr Conditional kForGpus{"for_gpus", "gpus", &FrameworkFile::for_gpus};

// Merges the items that apply over the keys.
Node conditional_keys(Node keys, const FrameworkFile& file, const Conditional& conditional,
                      const std::function<bool(const std::string&)>& applies) {
  const Node& list = file.*conditional.member;
  if (list.kind() == Node::Kind::kNull) return keys;
  for (const Node& item : list.items()) {
    const std::vector<std::string> names = Section(item, conditional.list).texts(conditional.names);
    if (std::ranges::any_of(names, applies)) keys = laid_over(keys, item.without({conditional.names}), file.name);
  }
  return keys;
}

// Reads every item as if it applied, so that an error does not wait for the run to which it does.
void check_conditional(const FrameworkFile& file, const Conditional& conditional) {
  if ((file.*conditional.member).kind() == Node::Kind::kNull) return;
  for (const Node& item : (file.*conditional.member).items()) {
    Section section(item, conditional.list);
    if (section.texts(conditional.names).empty()) {
      throw UserError(section.where(conditional.names),
                      fmt::format("{}: the list is empty, and the keys apply nowhere", conditional.names));
    }
    read_framework_keys(laid_over(file.keys, item.without({conditional.names}), file.name));
  }
}

// Returns whether a name in a list matches a model: it is the model's name, or a prefix followed by *.
bool is_model(const std::string& pattern, const std::string& model) {
  if (!pattern.ends_with("*")) return pattern == model;
  return model.starts_with(pattern.substr(0, pattern.size() - 1));
}

// Returns the words of a text in lower case, with a blank before and after each.
std::string spaced_words(std::string_view text) {
  std::string words = " ";
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool part = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (part) words += upper ? static_cast<char>(c - 'A' + 'a') : c;
    if (!part && words.back() != ' ') words += ' ';
  }
  return words.back() == ' ' ? words : words + ' ';
}

// Returns whether the machine has this GPU. Profiles state no architecture, so that the words of the machine's title
// and name decide, and of the profile of the same architecture that it is derived from.
bool is_gpu(const std::string& gpu, const Hardware& machine) {
  const std::string asked = spaced_words(gpu);
  // The numbers that a run changes follow in brackets; a host among them may have a GPU's name.
  const auto names = [&](const std::string& text) {
    return spaced_words(text.substr(0, text.find(" ("))).find(asked) != std::string::npos;
  };
  if (asked == " ") return false;
  return names(machine.title) || names(machine.name) ||
         (machine.fit != TimesOrigin::kNone && names(machine.derived_from));
}

void refuse_unmatched(const FrameworkFile& file, const Conditional& conditional, const std::string& folder,
                      const std::vector<std::string>& known, const std::function<bool(const std::string&)>& matches) {
  const Node& list = file.*conditional.member;
  if (list.kind() == Node::Kind::kNull) return;
  for (const Node& item : list.items()) {
    Section section(item, conditional.list);
    for (const std::string& name : section.texts(conditional.names)) {
      if (matches(name)) continue;
      throw UserError(section.where(conditional.names),
                      fmt::format("{}: {}: nothing under configs/{} matches \"{}\"{}", conditional.list,
                                  conditional.names, folder, shorten(name), did_you_mean(name, known)),
                      known);
    }
  }
}

using Version = std::vector<int>;

constexpr const char* kVersion = "[0-9]{1,6}(?:\\.[0-9]{1,6}){0,3}";

// `text` matches kVersion.
Version version_of(const std::string& text) {
  Version version;
  for (const char* at = text.c_str();; ++at) {
    char* end = nullptr;
    version.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (*end != '.') return version;
    at = end;
  }
}

std::string read_version(Section& versions, const char* key) {
  static const std::regex pattern(kVersion);
  const std::string text = versions.text(key, "");
  if (text.empty() || std::regex_match(text, pattern)) return text;
  throw UserError(versions.where(key),
                  fmt::format("{}: expected a version such as 0.16, found \"{}\"", key, shorten(text)));
}

void read_versions(Section versions, FrameworkFile& file) {
  file.from = read_version(versions, "from"), file.before = read_version(versions, "before");
  versions.finish();
  if (file.from.empty() || file.before.empty() || version_of(file.from) < version_of(file.before)) return;
  throw UserError(versions.where("before"),
                  fmt::format("before: must be a later version than from ({}), found {}", file.from, file.before));
}

// Splits a name into the name without its version, and the version: {"transformers-flash", "4.51"}.
std::pair<std::string, std::string> split_name(const std::string& name) {
  static const std::regex pattern(fmt::format("-({})(?=-|$)", kVersion));
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

// `below`: the files that take over this one's keys.
FrameworkFile read_file(const std::string& path, std::vector<std::string> below) {
  const Node whole = load_yaml(path);
  Section section(whole, "framework file");
  FrameworkFile file;
  file.name = stem_of(path);
  file.title = section.text("title");
  file.source = section.text("source");
  if (section.has("versions")) read_versions(section.section("versions", "versions"), file);
  file.keys = whole.without({"title", "source", "like", "versions", kForModels.list, kForGpus.list});
  for (const Conditional& conditional : {kForModels, kForGpus}) {
    const auto list = section.optional_node(conditional.list);
    if (list && list->kind() != Node::Kind::kList) {
      throw UserError(list->where(),
                      fmt::format("{}: expected a list of maps, found {}", conditional.list, describe(*list)));
    }
    if (list) file.*conditional.member = *list;
  }
  if (section.has("like")) {
    file.like = section.text("like");
    const std::string base_path = find_config("frameworks", file.like, section.where("like"));
    below.push_back(path);
    if (std::ranges::find(below, base_path) != below.end()) {
      throw UserError(section.where("like"), fmt::format("like: \"{}\" is like this file", file.like));
    }
    const FrameworkFile base = read_file(base_path, std::move(below));
    file.keys = laid_over(base.keys, file.keys, file.name);
    for (const auto member : {kForModels.member, kForGpus.member}) {
      if ((file.*member).kind() == Node::Kind::kNull) file.*member = base.*member;
    }
  }
  read_framework_keys(file.keys);
  for (const Conditional& conditional : {kForModels, kForGpus}) check_conditional(file, conditional);
  return file;
}

}  // namespace

std::string find_framework(const std::string& name, const SourceLocation& where) {
  if (const auto path = find_config_if_any("frameworks", name, where)) return *path;
  const auto [family, version] = split_name(name);
  std::vector<std::string> known;
  std::optional<std::string> found;  // the file of this name in another spelling, or the one that covers the version
  Unread unread;
  for (const std::string& path : config_files("frameworks", where)) {
    known.push_back(stem_of(path));
    if (loose_name(known.back()) == loose_name(name)) found = path;
    if (version.empty() || loose_name(split_name(known.back()).first) != loose_name(family)) continue;
    FrameworkFile file;
    if (!unread.attempt([&] { return file = read_framework_file(path), true; })) continue;
    const Version asked = version_of(version);
    const bool early = !file.from.empty() && asked < version_of(file.from);
    const bool late = !file.before.empty() && asked >= version_of(file.before);
    if (!early && !late && !found) found = path;
  }
  if (found) return *found;
  const std::string why = version.empty() ? "" : fmt::format(", and no file of \"{}\" covers this version", family);
  const bool is_family = std::ranges::find(known, family) != known.end();
  throw not_found("frameworks", name, where, known, (is_family ? why : "") + unread.text(where));
}

FrameworkFile read_framework_file(const std::string& path) { return read_file(path, {}); }

void refuse_unmatched_names(const FrameworkFile& file) {
  const std::vector<std::string> models = names_in("models");
  refuse_unmatched(file, kForModels, "models", models, [&](const std::string& pattern) {
    return std::ranges::any_of(models, [&](const std::string& name) { return is_model(pattern, name); });
  });
  if (file.for_gpus.kind() == Node::Kind::kNull) return;  // spares reading every machine
  std::vector<Hardware> profiles;
  Unread unread;
  for (const std::string& path : config_files("hardware"))
    unread.attempt([&] { return profiles.push_back(read_hardware(path)), true; });
  refuse_unmatched(file, kForGpus, "hardware", names_in("hardware"), [&](const std::string& gpu) {
    return std::ranges::any_of(profiles, [&](const Hardware& machine) { return is_gpu(gpu, machine); });
  });
}

Framework read_framework(const Node& choice, const Model& model, const Hardware& machine) {
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
    keys = conditional_keys(file.keys, file, kForModels,
                            [&](const std::string& pattern) { return is_model(pattern, model.name); });
    keys = conditional_keys(keys, file, kForGpus, [&](const std::string& gpu) { return is_gpu(gpu, machine); });
    title = file.name;
  }
  framework = read_framework_keys(laid_over(keys, over, "the run"));
  framework.name = title;
  if (!title.empty() && !over.entries().empty()) framework.name += fmt::format(" ({})", changes_text(over));
  return framework;
}

PassTokens pass_tokens(const Framework& framework, std::int64_t context) {
  constexpr std::int64_t kLeast = 2048;  // vLLM V0: max(max_model_len, 2048)
  if (framework.prefill_chunk == 0) return {};
  if (context <= framework.chunks_beyond) return {0, std::max(context, kLeast)};
  return {framework.prefill_chunk, framework.prefill_chunk};
}

}  // namespace kvcast::config
