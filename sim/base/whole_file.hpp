// Files that are written and read as a whole.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/temporary.hpp"

namespace kvcast {

// Writes to PATH.part, which takes the place of PATH when it is complete: readers never see half a file, and a file
// that was there stays until then. Whatever is no regular file (/dev/stdout, a pipe) is written to as it is.
class WholeFile {
 public:
  // UserError naming the file where it cannot be written.
  explicit WholeFile(std::string path);
  std::ostream& stream() { return out_; }
  // UserError naming the file where its contents could not be written.
  void commit();

 private:
  std::string path_;
  bool special_;  // whether it is written to as it is
  std::optional<Temporary> part_;
  std::ofstream out_;
};

// The text as a file. UserError as above.
void write_whole_file(const std::string& path, std::string_view text);

// A file's bytes. UserError ("cannot read <what>") where it cannot be read or is no file: a device or pipe may never
// end.
std::string read_whole_file(const std::string& path, const std::string& what);

}  // namespace kvcast
