#include "web/client_text.hpp"

#include <filesystem>

#include "base/build.hpp"

namespace kvcast::web {
namespace {

namespace fs = std::filesystem;

// Returns whether the file lies in the data folder and is reached without links.
bool is_shipped(const std::string& file) {
  std::error_code failure;
  const fs::path home = fs::canonical(data_dir(), failure);
  if (failure) return false;
  const fs::path there = fs::canonical(file, failure);
  if (failure || fs::is_symlink(file, failure)) return false;
  for (const char* folder : {"configs", "traces/recipes"}) {
    const fs::path below = there.lexically_relative(home / folder);
    if (!below.empty() && *below.begin() != "..") return true;
  }
  return false;
}

}  // namespace

std::string client_text(const UserError& error) {
  const SourceLocation& where = error.where();
  if (where.file.empty() || where.from_request || is_shipped(where.file)) return error.what();
  return fmt::format("{} cannot be used; the server's terminal says why", where.file);
}

}  // namespace kvcast::web
