#include "base/file_state.hpp"

#include <sys/stat.h>

namespace kvcast {

std::optional<FileState> state_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return FileState{status.st_dev, status.st_ino, status.st_size, status.st_ctim};
}

}  // namespace kvcast
