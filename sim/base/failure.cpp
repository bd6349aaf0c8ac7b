#include "base/failure.hpp"

#include <fmt/format.h>

#include <cstring>

namespace kvcast {

NoMemory::NoMemory(std::size_t bytes, const std::string& wanted_for)
    : text_(std::make_shared<const std::string>(fmt::format("too little memory: this needs {:.2f} GB more, for {}",
                                                            static_cast<double>(bytes) / 1e9, wanted_for))) {}

std::string cannot_be_written(int error) {
  return error == 0 ? "cannot be written" : fmt::format("cannot be written: {}", std::strerror(error));
}

std::string shortened(const std::string& text) {
  if (text.size() <= kLongestMessage) return text;
  constexpr std::size_t kEnd = 400;  // bytes kept of the end; the location and the cause are at the start
  std::size_t front = kLongestMessage - kEnd - 40, back = text.size() - kEnd;
  const auto inside = [&text](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  while (front > 0 && inside(front)) --front;  // do not cut a UTF-8 character
  while (back < text.size() && inside(back)) ++back;
  return fmt::format("{} [{} bytes left out] {}", text.substr(0, front), back - front, text.substr(back));
}

}  // namespace kvcast
