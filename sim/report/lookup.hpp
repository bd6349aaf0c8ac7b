// Reading from results that may lack any part: a missing or mistyped value is absent, never an error.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace kvcast::report {

// The value at a dotted path ("decode.tpot_s.p99"), or nullptr. A member whose own name holds dots is found too
// ({"decode.tpot_s": ..} under "decode.tpot_s"), as lists of intervals and origins are keyed.
const nlohmann::json* find_path(const nlohmann::json& value, const std::string& path);

// NaN where there is none; a text that is a number as a whole counts as one.
double number_at(const nlohmann::json& value, const std::string& path);
// Empty where there is none; numbers and booleans as the text a user would write.
std::string text_at(const nlohmann::json& value, const std::string& path);
std::string as_text(const nlohmann::json& scalar);
double as_number(const nlohmann::json& scalar);

}  // namespace kvcast::report
