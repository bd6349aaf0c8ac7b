#include "base/whole_file.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/failure.hpp"

namespace kvcast {
namespace {

namespace fs = std::filesystem;

bool is_special(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

}  // namespace

bool is_regular(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

WholeFile::WholeFile(std::string path) : path_(std::move(path)), special_(is_special(path_)) {
  if (!special_) part_.emplace(path_ + ".part");
  if (path_.empty()) throw UserError("an output file has no name");
  out_.open(special_ ? path_ : part_->path(), std::ios::binary | std::ios::trunc);
  const int error = errno;  // before the next call sets it
  if (fs::is_directory(path_)) throw UserError({path_, 0, 0}, "cannot be written: it is a folder");
  if (!out_) throw UserError({path_, 0, 0}, cannot_be_written(error));
}

void WholeFile::commit() {
  errno = 0;
  out_.close();
  std::error_code error;
  if (out_ && part_) fs::rename(part_->path(), path_, error);
  if (out_ && !error) return;
  throw OutputError(path_ + ": " + cannot_be_written(error ? error.value() : errno));
}

std::string read_whole_file(const std::string& path, const std::string& what) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  std::string bytes;
  std::ifstream in;
  if (is_regular(path)) in.open(path, std::ios::binary);
  if (in.is_open()) {
    const auto size = fs::file_size(path, unknown);
    if (!unknown) bytes.resize(size);
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(in.gcount()));
    if (in.peek() != std::ifstream::traits_type::eof())
      bytes.append(std::istreambuf_iterator<char>(in), {});  // it grew
  }
  if (!in.is_open() || in.bad()) {
    const char* const why = fs::exists(status) && !fs::is_regular_file(status) ? " (not a file)" : "";
    throw UserError({path, 0, 0}, fmt::format("cannot read {}{}", what, why));
  }
  return bytes;
}

void write_whole_file(const std::string& path, std::string_view text) {
  WholeFile file(path);
  file.stream() << text;
  file.commit();
}

}  // namespace kvcast
