#include "app/planned_from.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "base/build.hpp"
#include "base/file_state.hpp"
#include "base/hash.hpp"
#include "config/find.hpp"
#include "study/prepare.hpp"

namespace kvcast::app {
namespace {

namespace fs = std::filesystem;

// Names of files have folders or an extension of letters; numbers and names of models have neither.
bool may_be_file(const std::string& text) {
  const std::size_t dot = text.rfind('.');
  const bool extension =
      dot != std::string::npos && dot + 1 < text.size() && std::isalpha(static_cast<unsigned char>(text[dot + 1])) != 0;
  std::error_code unknown;
  return extension || config::is_path(text) || fs::exists(text, unknown);
}

bool may_name_file(const config::Node& node) {
  if (node.kind() == config::Node::Kind::kScalar) return may_be_file(node.text());
  if (node.kind() == config::Node::Kind::kList) return std::ranges::any_of(node.items(), may_name_file);
  return node.kind() == config::Node::Kind::kMap &&
         std::ranges::any_of(node.entries(), [](const auto& entry) { return may_name_file(entry.second); });
}

// Returns the texts of a YAML file that may be paths. Commas, brackets and quotes separate texts; keys are left out.
std::vector<std::string> possible_paths(const std::string& file) {
  std::vector<std::string> paths;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    line.resize(std::min(line.find("# "), line.size()));
    for (std::size_t begin = 0, end = 0; begin < line.size(); begin = end + 1) {
      end = std::min(line.find_first_of(",[]{}\"'", begin), line.size());
      std::string part = line.substr(begin, end - begin);
      for (const char* before : {": ", "- "}) {
        if (const std::size_t at = part.rfind(before); at != std::string::npos) part.erase(0, at + 2);
      }
      part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
      part.erase(part.find_last_not_of(' ') + 1);
      if (part.find_first_of("/.") != std::string::npos) paths.push_back(std::move(part));
    }
  }
  return paths;
}

// Adds the files below a folder and all files that its YAML files name, directly or through other YAML files. Returns
// false if a folder below is a symbolic link.
bool list_files(const fs::path& folder, std::set<std::string>& files) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) {
      if (entry.is_symlink()) return false;
    } else {
      paths.push_back(entry.path().string());
    }
  }
  std::set<std::string> tried;
  while (!paths.empty()) {
    const std::string path = std::move(paths.back());
    paths.pop_back();
    if (!files.insert(path).second || !path.ends_with(".yaml")) continue;
    for (const std::string& named : possible_paths(path)) {
      if (!tried.insert(named).second) continue;  // most are numbers that many files contain
      for (const fs::path& root : {fs::path("."), fs::path(data_dir())}) {
        const std::string found = (root / named).lexically_normal().string();
        if (state_of(found)) paths.push_back(found);
      }
    }
  }
  return true;
}

// Appends path and state of each file; false if that does not identify their content.
bool append_states(const std::set<std::string>& files, std::string& text) {
  const std::time_t now = std::time(nullptr);
  for (const std::string& path : files) {
    const auto state = state_of(path);
    if (!state || !state->settled(now)) return false;
    text += fmt::format("{}\n{} {} {} {} {}\n", path, state->device, state->inode, state->size, state->changed.tv_sec,
                        state->changed.tv_nsec);
  }
  return true;
}

}  // namespace

std::optional<std::string> planned_from(const config::Node& sweep) {
  if (may_name_file(sweep.without({"name", "description"}))) return {};
  std::string text = fmt::format("{}\n{}\n", study::code_version(), sweep.in_order());
  try {
    std::set<std::string> files;
    for (const char* name : {"configs", "traces"}) {
      const fs::path folder = fs::path(data_dir()) / name;
      if (fs::exists(name) && !fs::equivalent(name, folder)) return {};
      if (!list_files(folder, files)) return {};
    }
    if (!append_states(files, text)) return {};
  } catch (const fs::filesystem_error&) {
    return {};
  }
  return content_hash(text);
}

}  // namespace kvcast::app
