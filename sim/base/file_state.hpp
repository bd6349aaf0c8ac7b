// Files that are read again only after they have changed.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace kvcast {

// The state of a regular file from stat(). Equal states mean equal content, unless the file was written again within
// the resolution of its modification time (git's index calls this "racily clean").
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  timespec changed = {};

  bool operator==(const FileState& o) const {
    return device == o.device && inode == o.inode && size == o.size && changed.tv_sec == o.changed.tv_sec &&
           changed.tv_nsec == o.changed.tv_nsec;
  }
  // Returns whether the state is old enough at `now` to identify content that is read after that.
  bool settled(std::time_t now) const { return now - changed.tv_sec > kResolution; }

 private:
  static constexpr std::time_t kResolution = 2;  // seconds; FAT has the coarsest
};

// Empty if there is no regular file: errno says why it was not found, and is left as it is for anything else.
std::optional<FileState> state_of(const std::string& path);

// An object that is made of files, and kept until one of them changes or others are asked for. Whoever holds it keeps
// it beyond that. May be called from several threads.
template <typename Made>
class MadeOfFiles {
 public:
  template <typename Make>
  std::shared_ptr<const Made> of(const std::vector<std::string>& paths, const Make& make) {
    const std::lock_guard lock(mutex_);
    std::vector<std::optional<FileState>> states;
    bool settled = true;
    for (const std::string& path : paths) {
      const auto& state = states.emplace_back(state_of(path));
      settled = settled && state && state->settled(std::time(nullptr));
    }
    if (made_ && paths == paths_ && states == states_) return made_;
    made_.reset();
    auto made = std::make_shared<const Made>(make());
    if (settled) made_ = made, paths_ = paths, states_ = std::move(states);
    return made;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> paths_;
  std::vector<std::optional<FileState>> states_;
  std::shared_ptr<const Made> made_;
};

}  // namespace kvcast
