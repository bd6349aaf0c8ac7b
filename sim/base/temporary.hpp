// Temporary files that are removed at the end, even when a signal ends the program.
#pragma once

#include <string>

namespace kvcast {

// A file or folder, existing or not, that the destructor removes. Objects may live in any thread.
class Temporary {
 public:
  explicit Temporary(std::string path);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Removes the files of all live objects, for a program that ends without running their destructors.
void remove_temporaries();

}  // namespace kvcast
