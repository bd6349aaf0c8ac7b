// Temporary files that are gone in the end, also when a signal ends the program.
#pragma once

#include <string>

namespace kvcast {

// A file or folder, there or not yet, that is removed in the end. Objects may live in any thread.
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

// Removes those of all objects that are alive, for a program that ends without their destructors.
void remove_temporaries();

}  // namespace kvcast
