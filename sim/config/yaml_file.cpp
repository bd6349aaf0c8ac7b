// load_yaml and its cache.

#include <sys/stat.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>

#include "config/yaml.hpp"

namespace kvcast::config {
namespace {

// The state of a file from stat(). Equal states mean equal content, unless the file was written again within the
// resolution of its modification time (git's index calls this "racily clean").
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  timespec changed = {};

  bool operator==(const FileState& o) const {
    return device == o.device && inode == o.inode && size == o.size && changed.tv_sec == o.changed.tv_sec &&
           changed.tv_nsec == o.changed.tv_nsec;
  }
};

FileState checked_state(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR) throw UserError({path}, "no such file");
    throw UserError({path}, "cannot be read: " + std::generic_category().message(code));
  }
  if (!S_ISREG(status.st_mode)) throw UserError({path}, "not a file");
  if (static_cast<std::uintmax_t>(status.st_size) > kMaxYamlBytes) {
    throw UserError({path}, fmt::format("larger than {} MiB", kMaxYamlBytes >> 20));
  }
  return {status.st_dev, status.st_ino, status.st_size, status.st_ctim};
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
    const bool settled = now - state.changed.tv_sec > kResolution;
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
  static constexpr std::time_t kResolution = 2;  // seconds; FAT has the coarsest

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
