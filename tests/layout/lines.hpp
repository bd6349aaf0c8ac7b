// The lines of the project's files.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

inline const std::filesystem::path kRoot = KVCAST_SOURCE_DIR;

using Lines = std::vector<std::string>;

inline Lines lines_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
