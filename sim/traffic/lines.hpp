// Lines of a file that may be too large to hold.
#pragma once

#include <fstream>
#include <string>

#include "base/error.hpp"

namespace kvcast::traffic {

class Lines {
 public:
  static constexpr std::size_t kLongest = 16u << 20;  // bytes

  // Throws UserError unless the file is a regular one that can be read: a device or pipe may never end.
  explicit Lines(const std::string& path);

  // Reads the next line that is not blank, without its end; returns whether there is one. Throws UserError for a longer
  // one than kLongest.
  bool next(std::string& line);
  SourceLocation where() const { return {path_, line_, 1}; }  // of the line read last
  std::ifstream& stream() { return in_; }

 private:
  std::string path_;
  std::ifstream in_;
  int line_ = 0;
};

}  // namespace kvcast::traffic
