// A stable 128-bit content hash (XXH3): the same on every machine and in every version of kvcast.
#pragma once

#include <string>
#include <string_view>

namespace kvcast {

// 32 hexadecimal digits.
std::string content_hash(std::string_view bytes);

}  // namespace kvcast
