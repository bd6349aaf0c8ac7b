// Data files are located relative to the code, so that a build or an installed tree can be moved.
#include "base/build.hpp"

#include <link.h>

#include <cstdint>
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
  const fs::path program = code_file();
  std::string found = program.empty() ? "" : found_from(program.parent_path());
  if (!found.empty()) return found;
  if (holds_data(".")) return ".";
  throw UserError(
      fmt::format("the data of kvcast are neither near {} nor in the working directory; set KVCAST_DATA to "
                  "the folder that contains configs/",
                  program.string()));
}

struct Object {
  std::uintptr_t address;  // in one of its segments
  std::string file;        // empty for the executable
};

int find_object(dl_phdr_info* info, std::size_t, void* data) {
  auto& wanted = *static_cast<Object*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || wanted.address < begin || wanted.address >= begin + segment.p_memsz) continue;
    wanted.file = info->dlpi_name;
    return 1;
  }
  return 0;
}

std::string& folder_of_thread() {
  thread_local std::string folder;
  return folder;
}

}  // namespace

std::string code_file() {
  Object object{reinterpret_cast<std::uintptr_t>(&find_object), ""};
  ::dl_iterate_phdr(find_object, &object);
  std::error_code error;
  const fs::path file =
      object.file.empty() ? fs::read_symlink("/proc/self/exe", error) : fs::absolute(object.file, error);
  return error ? "" : file.string();
}

const char* version() { return KVCAST_VERSION; }

const std::string& data_dir() {
  if (!folder_of_thread().empty()) return folder_of_thread();
  static const std::string folder = find_data();
  return folder;
}

DataFolder::DataFolder(const std::string& folder) : before_(folder_of_thread()) {
  if (folder.empty()) return;
  if (!holds_data(folder)) throw UserError(fmt::format("{}: it has no folder configs/models", folder));
  folder_of_thread() = folder;
}

DataFolder::~DataFolder() { folder_of_thread() = before_; }

const std::string& DataFolder::current() { return folder_of_thread(); }

}  // namespace kvcast
