#include "traffic/lines.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "base/whole_file.hpp"

namespace kvcast::traffic {

std::ifstream open_trace(const std::string& path) {
  std::ifstream in;
  errno = 0;
  if (is_regular(path)) in.open(path, std::ios::binary);
  if (in.is_open()) return in;
  const char* const reason = errno != 0 ? std::strerror(errno) : "it is no regular file";
  throw UserError({path, 0, 0}, fmt::format("cannot read the trace: {}", reason));
}

Lines::Lines(const std::string& path) : path_(path), in_(open_trace(path)) {}

bool Lines::next(std::string& line) {
  constexpr auto kEnd = std::char_traits<char>::eof();
  std::streambuf& in = *in_.rdbuf();
  while (in.sgetc() != kEnd) {
    line.clear();
    if (line_ < std::numeric_limits<int>::max()) ++line_;
    for (auto c = in.sbumpc(); c != kEnd && c != '\n'; c = in.sbumpc()) {
      if (line.size() == kLongest) throw UserError(where(), fmt::format("the line has more than {} bytes", kLongest));
      line += std::char_traits<char>::to_char_type(c);
    }
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) return true;
  }
  return false;
}

}  // namespace kvcast::traffic
