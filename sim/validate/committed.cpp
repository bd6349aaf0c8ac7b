#include "validate/committed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace kvcast::validate {
namespace {

// link.engine_turn and gpu.block_bandwidth were chosen from them.
constexpr const char* kInView = "h200-kvcast";

std::vector<Measured> all_committed(const std::string& file) {
  std::string folder = "configs/validation/gpu";  // of the working directory, otherwise of the source tree
  if (!std::filesystem::is_directory(folder)) folder = data_dir() + "/" + folder;
  std::vector<Measured> all;
  if (!std::filesystem::is_directory(folder)) return all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path path = entry.path() / file;
    const std::string name = entry.path().filename().string();
    if (std::filesystem::is_regular_file(path)) all.push_back({path.string(), name, name == kInView});
  }
  std::ranges::sort(all, [](const Measured& a, const Measured& b) { return a.results < b.results; });
  return all;
}

}  // namespace

std::vector<Measured> given_or_committed(const std::string& suite, const Measured& given, const std::string& file) {
  std::vector<Measured> committed = all_committed(file);
  if (given.results.empty()) return committed;
  if (given.profile.empty()) {
    throw UserError(fmt::format("{}: --from needs --profile, the machine's own (kvcast calibrate cuda)", suite));
  }
  // The given file may be one of the project's, or a copy.
  const std::string text = read_whole_file(given.results, "the results");
  Measured measured = given;
  measured.in_view = given.in_view || std::ranges::any_of(committed, [&](const Measured& one) {
                       return one.in_view && read_whole_file(one.results, "the project's results") == text;
                     });
  return {measured};
}

}  // namespace kvcast::validate
