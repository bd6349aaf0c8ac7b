// What a result holds besides plain numbers, as JSON: the column `parts`.
#pragma once

#include <string>

#include "result/result.hpp"

namespace kvcast::store {

// Owners of memory, the report on what did not fit, effects of shifted costs, the attributions less what has columns,
// timeline, task and benchmark scores, swept values, alternatives. Texts that are not UTF-8 are written as {"hex":
// bytes}, numbers that are not finite as texts. Settings whose text reads like a flag are named under "texts".
std::string parts_text(const result::Result& result);

// Fills in what parts_text() wrote. Throws std::exception for anything that it cannot have written.
void read_parts(const std::string& text, result::Result& result);

}  // namespace kvcast::store
