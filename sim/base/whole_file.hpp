// Reading and writing of whole files.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/temporary.hpp"

namespace kvcast {

// Writes to PATH.part and renames it to PATH on completion: readers never see half a file, and an existing file stays
// until then. Special files (/dev/stdout, a pipe) are written directly.
class WholeFile {
 public:
  // Throws UserError naming the file if it cannot be opened.
  explicit WholeFile(std::string path);
  std::ostream& stream() { return out_; }
  // Throws UserError naming the file if its contents could not be written.
  void commit();

 private:
  std::string path_;
  bool special_;  // written directly, without PATH.part
  std::optional<Temporary> part_;
  std::ofstream out_;
};

// Writes the text as a file. Throws UserError as above.
void write_whole_file(const std::string& path, std::string_view text);

// Returns whether there is a regular file: opening anything else, such as a device or a pipe, may never return.
bool is_regular(const std::string& path);

// Returns a file's bytes. Throws UserError ("cannot read <what>") if it cannot be read or is not a regular file: a
// device or pipe may never end.
std::string read_whole_file(const std::string& path, const std::string& what);

}  // namespace kvcast
