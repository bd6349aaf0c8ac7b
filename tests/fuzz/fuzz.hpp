// A parser on arbitrary bytes: it reads them or throws UserError. Anything else is a finding: another exception, a
// sanitizer's report, a hang, or a message that grows with the input.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace kvcast::fuzz {

inline constexpr std::size_t kLongestMessage = 2000;

template <typename Parse>
int run(const std::uint8_t* data, std::size_t size, const Parse& parse) {
  try {
    parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const UserError& error) {
    if (std::string_view(error.what()).size() > kLongestMessage) std::abort();
  }
  return 0;
}

}  // namespace kvcast::fuzz
