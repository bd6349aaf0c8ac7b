#include "app/planned_from.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
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

// Appends path and state of each file below a folder; false if that does not identify their content.
bool append_states(const fs::path& folder, std::string& text) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) {
      if (entry.is_symlink()) return false;
    } else {
      paths.push_back(entry.path().string());
    }
  }
  std::ranges::sort(paths);
  const std::time_t now = std::time(nullptr);
  for (const std::string& path : paths) {
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
  std::string text = fmt::format("{}\n{}\n", study::code_version(), sweep.canonical());
  try {
    for (const char* name : {"configs", "traces"}) {
      const fs::path folder = fs::path(data_dir()) / name;
      if (fs::exists(name) && !fs::equivalent(name, folder)) return {};
      if (!append_states(folder, text)) return {};
    }
  } catch (const fs::filesystem_error&) {
    return {};
  }
  return content_hash(text);
}

}  // namespace kvcast::app
