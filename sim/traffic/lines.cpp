#include "traffic/lines.hpp"

#include <fmt/format.h>

#include <limits>

#include "base/whole_file.hpp"

namespace kvcast::traffic {

Lines::Lines(const std::string& path) : path_(path) {
  if (is_regular(path)) in_.open(path, std::ios::binary);
  if (!in_.is_open()) throw UserError({path, 0, 0}, "cannot read the trace");
}

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
