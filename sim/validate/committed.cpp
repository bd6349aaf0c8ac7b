#include "validate/committed.hpp"

#include <algorithm>
#include <filesystem>

#include "base/build.hpp"

namespace kvcast::validate {

std::vector<Committed> committed(const std::string& file) {
  std::string folder = "configs/validation/gpu";  // of the working directory, otherwise of the source tree
  if (!std::filesystem::is_directory(folder)) folder = data_dir() + "/" + folder;
  std::vector<Committed> all;
  if (!std::filesystem::is_directory(folder)) return all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path path = entry.path() / file;
    if (std::filesystem::is_regular_file(path)) all.push_back({path.string(), entry.path().filename().string()});
  }
  std::sort(all.begin(), all.end(), [](const Committed& a, const Committed& b) { return a.results < b.results; });
  return all;
}

}  // namespace kvcast::validate
