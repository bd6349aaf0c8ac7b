#include "app/outputs.hpp"

#include <filesystem>

#include "base/error.hpp"

namespace kvcast::app {

void refuse_overwritten(const std::string& output, const char* option, std::span<const std::string> inputs) {
  if (output.empty()) return;
  for (const std::string& input : inputs) {
    std::error_code missing;
    if (!std::filesystem::equivalent(output, input, missing)) continue;
    throw UserError(
        fmt::format("{} is also read ({}) and would be overwritten: name another file by {}", output, input, option));
  }
}

}  // namespace kvcast::app
