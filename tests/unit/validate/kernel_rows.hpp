// Rows that no GPU has measured, as kvcast-kernels writes them, and what `policy_kernels` makes of them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_directory.hpp"
#include "validate/policy_kernels.hpp"

namespace kvcast::tests {

// seconds: median of one call.
inline nlohmann::json kernel_row(const std::string& bench, const nlohmann::json& axes, double seconds,
                                 const std::string& mode = "cold",
                                 const nlohmann::json& work = nlohmann::json::object()) {
  return {{"bench", bench}, {"axes", axes},           {"mode", mode},
          {"work", work},   {"skip_reason", nullptr}, {"time_s", {{"median", seconds}}}};
}

// Judged by the profile h100-sxm.
inline validate::Suite judged_kernels(const nlohmann::json& rows) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/gpu.json";
  std::ofstream(path) << nlohmann::json{
      {"schema", "kvcast-kernels/1"}, {"environment", {{"device", "made by hand"}}}, {"rows", rows}};
  return validate::policy_kernels({path, "h100-sxm"});
}

}  // namespace kvcast::tests
