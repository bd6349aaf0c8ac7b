#include "base/origin.hpp"

#include <array>

#include "base/error.hpp"

namespace kvcast {
namespace {
constexpr std::array<std::string_view, 7> kNames = {"exact",     "measured", "fitted",      "literature",
                                                    "datasheet", "assumed",  "extrapolated"};
}  // namespace

std::string_view origin_name(Origin origin) { return kNames[static_cast<std::size_t>(origin)]; }

Origin origin_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Origin>(i);
  }
  throw UserError({}, fmt::format("unknown origin \"{}\"", name), {kNames.begin(), kNames.end()});
}

}  // namespace kvcast
