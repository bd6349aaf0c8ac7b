// Prices of machines.
#pragma once

#include <optional>

#include "config/section.hpp"

namespace kvcast::config {

// Reads `price_per_hour:` of a run: a number, or a map of machines to numbers, of which this machine's applies, however
// its name is written and whatever numbers of it the run changes.
std::optional<double> read_price(Section& run);

}  // namespace kvcast::config
