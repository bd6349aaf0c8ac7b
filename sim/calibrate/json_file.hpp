// JSON of measurements, with the line and column of what is wrong with it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvcast::calibrate {

// Returns the JSON in a file. Throws UserError ("cannot read <what>") if it cannot be read, and with line and column
// for text that is not JSON and for a key that occurs twice in one object, of which a tree keeps only the last value.
nlohmann::json read_json_file(const std::string& path, const std::string& what);

}  // namespace kvcast::calibrate
