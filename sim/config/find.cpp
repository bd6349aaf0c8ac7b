#include "config/find.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "base/build.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code failure;
  return fs::is_regular_file(path, failure);
}

// Folders that a relative path may start from: the working directory comes first, so that users' own files win.
std::vector<fs::path> roots() { return {fs::path("."), fs::path(data_dir())}; }

std::string tidy(const fs::path& path) { return path.lexically_normal().string(); }

bool is_path(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".yaml"); }

std::optional<std::string> find_path(const std::string& name) {
  for (const fs::path& root : roots()) {
    if (is_file(root / name)) return tidy(root / name);
  }
  return {};
}

std::optional<std::string> find_name(const std::string& folder, const std::string& name) {
  return find_path("configs/" + folder + "/" + name + ".yaml");
}

std::vector<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const fs::path& root : roots()) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(root / "configs" / folder, failure)) {
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

// Reduces a name to what must match: case, hyphens, underscores and spaces are ignored.
std::string bare(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == ' ') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

enum class Spelling { kExact, kLoose };

bool answers_to(const Node& file, const std::string& name, Spelling spelling) {
  const auto is_name = [&](const Node& node) {
    if (node.kind() != Node::Kind::kScalar) return false;
    return spelling == Spelling::kExact ? node.text() == name : bare(node.text()) == bare(name);
  };
  const Node* title = file.find("title");
  const Node* aliases = file.find("aliases");
  return (title != nullptr && is_name(*title)) ||
         (aliases != nullptr && std::any_of(aliases->items().begin(), aliases->items().end(), is_name));
}

// Returns the path of the only file whose title or aliases contain the name.
std::optional<std::string> find_alias(const std::string& folder, const std::string& name,
                                      const SourceLocation& asked_at, Spelling spelling) {
  std::optional<std::string> found;
  for (const std::string& candidate : names_in(folder)) {
    const std::optional<std::string> path = find_name(folder, candidate);
    if (!path || !answers_to(load_yaml(*path), name, spelling)) continue;
    if (found) {
      throw UserError(asked_at, fmt::format("\"{}\" is ambiguous: both {} and {} match it", name, *found, *path));
    }
    found = path;
  }
  return found;
}

}  // namespace

std::optional<std::string> find_file(const std::string& below) { return find_path("configs/" + below); }

std::vector<std::string> config_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder)) files.push_back(find_name(folder, name).value());
  return files;
}

std::optional<std::string> find_config_if_any(const std::string& folder, const std::string& name,
                                              const SourceLocation& asked_at) {
  if (!is_path(name)) return find_name(folder, name);
  const std::optional<std::string> path = find_path(name);
  if (!path) throw UserError(asked_at, fmt::format("no such file: {}", shorten(name)));
  return path;
}

std::string find_config(const std::string& folder, const std::string& name, const SourceLocation& asked_at) {
  std::optional<std::string> path = is_path(name) ? find_path(name) : find_name(folder, name);
  // "device/framework" is an alias although it looks like a path.
  for (const Spelling spelling : {Spelling::kExact, Spelling::kLoose}) {
    if (!path) path = find_alias(folder, name, asked_at, spelling);
  }
  if (path) return *path;
  if (name.ends_with(".yaml")) throw UserError(asked_at, fmt::format("no such file: {}", shorten(name)));
  const std::vector<std::string> known = names_in(folder);
  throw UserError(
      asked_at,
      fmt::format("nothing named \"{}\" under configs/{}{}", shorten(name), folder, did_you_mean(name, known)), known);
}

}  // namespace kvcast::config
