// The parts of a result other than plain numbers, as JSON: the column `parts`.
#pragma once

#include <string>

#include "result/result.hpp"

namespace kvcast::store {

// Owners of memory, the report on a failed allocation, effects of shifted costs, the attributions without the values
// that have columns, timeline, task and benchmark scores, swept values, alternatives. Texts that are not UTF-8 are
// written as {"hex": bytes}, non-finite numbers as texts. Settings whose text reads like a flag are named under
// "texts".
std::string parts_text(const result::Result& result);

// Reads the output of parts_text() into the result. Throws std::exception for anything else.
void read_parts(const std::string& text, result::Result& result);

}  // namespace kvcast::store
