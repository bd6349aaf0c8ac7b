// Data files are located relative to the executable, so that a build or an installed tree can be moved.
#include "base/build.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"

namespace kvcast {
namespace {

namespace fs = std::filesystem;

bool holds_data(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "configs" / "models", ignored);
}

// An installed program has its data under share/kvcast. A build folder names its source tree in a file.
std::string found_from(fs::path folder) {
  for (;; folder = folder.parent_path()) {
    if (holds_data(folder / "share" / "kvcast")) return (folder / "share" / "kvcast").string();
    if (holds_data(folder)) return folder.string();
    std::string written;
    std::getline(std::ifstream(folder / "kvcast-data.txt"), written);
    if (!written.empty() && holds_data(written)) return written;
    if (folder == folder.parent_path()) return "";
  }
}

std::string find_data() {
  const char* const given = std::getenv("KVCAST_DATA");
  if (given != nullptr && *given != '\0') {
    if (holds_data(given)) return given;
    throw UserError(fmt::format("KVCAST_DATA={}: it has no folder configs/models", given));
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::string found = error ? "" : found_from(program.parent_path());
  if (!found.empty()) return found;
  if (holds_data(".")) return ".";
  throw UserError(
      fmt::format("the data of kvcast are neither near {} nor in the working directory; set KVCAST_DATA to "
                  "the folder that contains configs/",
                  program.string()));
}

}  // namespace

const char* version() { return KVCAST_VERSION; }

const std::string& data_dir() {
  static const std::string folder = find_data();
  return folder;
}

}  // namespace kvcast
