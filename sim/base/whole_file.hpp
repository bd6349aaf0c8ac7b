// A file that is there as a whole or not at all.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace kvcast {

// Writes to PATH.part, which takes the place of PATH when it is complete: readers never see half a file, and a file
// that was there stays until then. Whatever is no regular file (/dev/stdout, a pipe) is written to as it is.
class WholeFile {
 public:
  // UserError naming the file where it cannot be written.
  explicit WholeFile(std::string path);
  // Removes what was not committed.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  std::ostream& stream() { return out_; }
  // UserError naming the file where its contents could not be written.
  void commit();

 private:
  std::string path_, written_to_;
  std::ofstream out_;
};

// The text as a file. UserError as above.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace kvcast
