#include "config/find.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "base/build.hpp"
#include "config/machine_names.hpp"
#include "config/steady.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code failure;
  return fs::is_regular_file(path, failure);
}

std::string tidy(const fs::path& path) { return path.lexically_normal().string(); }

// A file of the data folder, unless that is the working directory.
bool is_shipped(const std::string& file) {
  const auto look = [&] {
    std::error_code failure;
    return file.starts_with(tidy(fs::path(data_dir()) / "configs" / "")) && !fs::equivalent(".", data_dir(), failure);
  };
  FoundFiles* const found = SteadyFiles::found();
  if (found == nullptr) return look();
  const auto known = found->shipped.find(file);
  return known != found->shipped.end() ? known->second : found->shipped.emplace(file, look()).first->second;
}

// Folders that a relative path may start from. The working directory comes first, so that users' own files win, except
// for names in a file of the data folder: a user's own h200 must not change the shipped machines that are like the
// shipped one.
std::vector<fs::path> roots(const SourceLocation& asked_at) {
  const fs::path here = ".", data = data_dir();
  return is_shipped(asked_at.file) ? std::vector{data, here} : std::vector{here, data};
}

std::optional<std::string> find_below_roots(const std::string& below, const SourceLocation& asked_at) {
  const auto look = [&]() -> std::optional<std::string> {
    for (const fs::path& root : roots(asked_at)) {
      const bool found = asked_at.from_request ? is_own_file(root.string(), below) : is_file(root / below);
      if (found) return tidy(root / below);
    }
    return {};
  };
  FoundFiles* const found = SteadyFiles::found();
  if (found == nullptr) return look();
  std::string search = is_shipped(asked_at.file) ? "shipped " : "";
  if (asked_at.from_request) search += "requested ";
  search += below;
  const auto known = found->paths.find(search);
  return known != found->paths.end() ? known->second : found->paths.emplace(search, look()).first->second;
}

std::optional<std::string> find_path(const std::string& name, const SourceLocation& asked_at) {
  return asked_at.from_request ? std::nullopt : find_below_roots(name, asked_at);
}

std::optional<std::string> find_name(const std::string& folder, const std::string& name,
                                     const SourceLocation& asked_at) {
  if (asked_at.from_request && name.find('/') != std::string::npos) return {};
  return find_below_roots("configs/" + folder + "/" + name + ".yaml", asked_at);
}

enum class Spelling { kExact, kLoose };

bool answers_to(const Node& file, const std::string& name, Spelling spelling) {
  const auto is_name = [&](const Node& node) {
    if (node.kind() != Node::Kind::kScalar) return false;
    return spelling == Spelling::kExact ? node.text() == name : loose_name(node.text()) == loose_name(name);
  };
  const Node* title = file.find("title");
  const Node* aliases = file.find("aliases");
  return (title != nullptr && is_name(*title)) ||
         (aliases != nullptr && std::ranges::any_of(aliases->items(), is_name));
}

// Returns the path of the only file whose title or aliases contain the name, or which has it loosely spelt. `unread`
// gets the errors of files that cannot be read: no other name depends on them.
std::optional<std::string> find_alias(const std::string& folder, const std::string& name,
                                      const SourceLocation& asked_at, Spelling spelling, Unread& unread) {
  std::optional<std::string> found;
  for (const std::string& candidate : names_in(folder, asked_at)) {
    const std::optional<std::string> path = find_name(folder, candidate, asked_at);
    const bool is_stem = spelling == Spelling::kLoose && loose_name(candidate) == loose_name(name);
    if (!path || !(is_stem || unread.attempt([&] { return answers_to(load_yaml(*path), name, spelling); }))) continue;
    if (found) {
      throw UserError(asked_at, fmt::format("\"{}\" is ambiguous: both {} and {} match it", name, *found, *path));
    }
    found = path;
  }
  return found;
}

}  // namespace

bool is_path(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".yaml"); }
std::string stem_of(const std::string& path) { return fs::path(path).stem().string(); }

bool is_own_file(const std::string& root, const std::string& below) {
  std::error_code failure;
  const fs::path home = fs::canonical(root, failure);
  if (failure || !is_file(home / below)) return false;
  const fs::path reached = fs::canonical(home / below, failure);
  return !failure && reached == home / below;
}

void refuse_request_for_file(const SourceLocation& asked_at, const std::vector<std::string>& known) {
  throw UserError(asked_at, "requests cannot name files, only what `kvcast models`, `hardware` and `policies` list",
                  known);
}

std::vector<std::string> names_in(const std::string& folder, const SourceLocation& asked_at) {
  std::set<std::string> names;
  for (const fs::path& root : roots(asked_at)) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(root / "configs" / folder, failure)) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() == ".yaml" && find_name(folder, name, asked_at)) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::string Unread::text(const SourceLocation& asked_at) const {
  return asked_at.from_request || errors_.empty() ? "" : fmt::format(" (not read: {})", fmt::join(errors_, "; "));
}

void refuse_hidden_aliases(const std::string& folder, const std::string& file, const std::vector<std::string>& aliases,
                           const SourceLocation& where) {
  std::error_code failure;
  for (const std::string& alias : aliases) {
    const std::optional<std::string> named = find_name(folder, alias, {file});
    if (!named || fs::equivalent(*named, file, failure)) continue;
    if (is_shipped(file) && !is_shipped(*named)) continue;  // the user's own file takes the shipped one's other name
    throw UserError(where, fmt::format("aliases: \"{}\" is the name of another file, {}, and selects that one",
                                       shorten(alias), *named));
  }
}

UserError not_found(const std::string& folder, const std::string& name, const SourceLocation& asked_at,
                    const std::vector<std::string>& known, const std::string& why) {
  const std::string searched = known.empty() && !asked_at.from_request
                                   ? fmt::format(", neither in the working directory nor in {}", data_dir())
                                   : "";
  return {asked_at,
          fmt::format("nothing named \"{}\" under configs/{}{}{}{}", shorten(name), folder, searched, why,
                      did_you_mean(name, known)),
          known};
}

std::optional<std::string> find_file(const std::string& below) { return find_path("configs/" + below, {}); }

std::vector<std::string> config_files(const std::string& folder, const SourceLocation& asked_at) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder, asked_at)) files.push_back(find_name(folder, name, asked_at).value());
  return files;
}

std::optional<std::string> find_config_if_any(const std::string& folder, const std::string& name,
                                              const SourceLocation& asked_at) {
  if (!is_path(name)) return find_name(folder, name, asked_at);
  if (asked_at.from_request) refuse_request_for_file(asked_at, names_in(folder, asked_at));
  const std::optional<std::string> path = find_path(name, asked_at);
  if (!path) throw UserError(asked_at, fmt::format("no such file: {}", shorten(name)));
  return path;
}

std::string find_config(const std::string& folder, const std::string& name, const SourceLocation& asked_at) {
  std::optional<std::string> path = is_path(name) ? find_path(name, asked_at) : find_name(folder, name, asked_at);
  Unread unread;
  // "device/framework" is an alias although it looks like a path.
  for (const Spelling spelling : {Spelling::kExact, Spelling::kLoose}) {
    if (!path) path = find_alias(folder, name, asked_at, spelling, unread);
  }
  if (!path && folder == "hardware") {
    const std::string shorter = short_machine_name(name);
    if (shorter != name) path = find_alias(folder, shorter, asked_at, Spelling::kLoose, unread);
  }
  // "meta-llama/Llama-3.1-8B" is the id of a model on Hugging Face: an owner and a name.
  const std::size_t slash = name.find('/');
  if (!path && folder == "models" && !asked_at.from_request && slash != std::string::npos && slash == name.rfind('/')) {
    for (const Spelling spelling : {Spelling::kExact, Spelling::kLoose}) {
      if (!path) path = find_alias(folder, name.substr(slash + 1), asked_at, spelling, unread);
    }
  }
  if (path) return *path;
  if (asked_at.from_request && is_path(name)) refuse_request_for_file(asked_at, names_in(folder, asked_at));
  if (name.ends_with(".yaml")) throw UserError(asked_at, fmt::format("no such file: {}", shorten(name)));
  const std::string advice = folder == "hardware" ? machine_advice(name) : "";
  if (!advice.empty()) throw UserError(asked_at, fmt::format("\"{}\": {}", shorten(name), advice));
  throw not_found(folder, name, asked_at, names_in(folder, asked_at), unread.text(asked_at));
}

}  // namespace kvcast::config
