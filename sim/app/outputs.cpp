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

void refuse_same(const std::string& output, const char* option, const std::string& other, const char* other_option) {
  if (output.empty() || other.empty()) return;
  std::error_code unknown;
  const auto canonical = [&](const std::string& path) { return std::filesystem::weakly_canonical(path, unknown); };
  if (canonical(output) == canonical(other)) {
    throw UserError(fmt::format("{}: {} and {} name one file", output, other_option, option));
  }
}

void refuse_existing(const std::string& out) {
  if (std::filesystem::exists(out)) throw UserError({"--out", 1, 1}, out + " exists; name another file");
}

void refuse_repeated(std::span<const std::string> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      std::error_code missing;
      if (!std::filesystem::equivalent(inputs[j], inputs[i], missing)) continue;
      throw UserError({inputs[i], 0, 0},
                      inputs[i] == inputs[j]
                          ? std::string("named twice: its rows would count twice")
                          : fmt::format("the same file as {}: its rows would count twice", inputs[j]));
    }
  }
}

}  // namespace kvcast::app
