// load_yaml and its cache.

#include <cerrno>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>

#include "base/file_state.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {
namespace {

FileState checked_state(const std::string& path) {
  errno = 0;
  const auto state = state_of(path);
  if (!state) {
    const int code = errno;
    if (code == 0) throw UserError({path}, "not a file");
    if (code == ENOENT || code == ENOTDIR) throw UserError({path}, "no such file");
    throw UserError({path}, "cannot be read: " + std::generic_category().message(code));
  }
  if (static_cast<std::uintmax_t>(state->size) > kMaxYamlBytes) {
    throw UserError({path}, fmt::format("larger than {} MiB", kMaxYamlBytes >> 20));
  }
  return *state;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) throw UserError({path}, "cannot be read");
  return std::move(content).str();
}

// Cache of parsed files by path: a sweep reads the same few files for each of its points. The cache never differs from
// the files.
class ParsedFiles {
 public:
  Node load(const std::string& path) {
    const FileState state = checked_state(path);
    const std::time_t now = std::time(nullptr);
    {
      const std::lock_guard lock(mutex_);
      const auto known = by_path_.find(path);
      if (known != by_path_.end() && known->second.settled && known->second.state == state) return known->second.root;
    }
    std::string content = content_of(path);
    const bool settled = state.settled(now);
    const std::lock_guard lock(mutex_);
    if (by_path_.size() >= kMostFiles) by_path_.clear();
    Parsed& file = by_path_[path];
    if (file.root.kind() == Node::Kind::kNull || file.content != content) file.root = parse_yaml(content, path);
    file.content = std::move(content);
    file.state = state;
    file.settled = settled;
    return file.root;
  }

 private:
  static constexpr std::size_t kMostFiles = 256;

  struct Parsed {
    FileState state;
    bool settled = false;  // the state was old enough when the content was read to identify it
    std::string content;
    Node root;
  };
  std::mutex mutex_;
  std::map<std::string, Parsed> by_path_;
};

}  // namespace

Node load_yaml(const std::string& path) {
  static ParsedFiles files;
  return files.load(path);
}

}  // namespace kvcast::config
