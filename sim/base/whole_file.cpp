#include "base/whole_file.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace kvcast {
namespace {

namespace fs = std::filesystem;

bool is_special(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

}  // namespace

WholeFile::WholeFile(std::string path)
    : path_(std::move(path)),
      written_to_(is_special(path_) ? path_ : path_ + ".part"),
      out_(written_to_, std::ios::binary | std::ios::trunc) {
  if (!out_ || fs::is_directory(path_)) throw UserError({path_, 0, 0}, "cannot be written");
}

WholeFile::~WholeFile() {
  std::error_code ignored;
  if (written_to_ != path_) fs::remove(written_to_, ignored);
}

void WholeFile::commit() {
  out_.close();
  std::error_code error;
  if (out_ && written_to_ != path_) fs::rename(written_to_, path_, error);
  if (!out_ || error) throw UserError({path_, 0, 0}, "cannot be written");
}

void write_whole_file(const std::string& path, std::string_view text) {
  WholeFile file(path);
  file.stream() << text;
  file.commit();
}

}  // namespace kvcast
