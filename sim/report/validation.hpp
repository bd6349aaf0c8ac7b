// The validation page, which shows the results of `kvcast validate -o DIR` for readers to check.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "report/assets.hpp"

namespace kvcast::report {

// Returns the document with the parts that the page needs; throws UserError naming the file and the part for anything
// else.
nlohmann::json read_validation(const std::string& path);

// Writes FOLDER/validation.html and FOLDER/tables/validation.csv; FOLDER/index.html as well unless `swept`, when that
// is the page of a sweep and is linked.
void write_validation(const nlohmann::json& document, const std::filesystem::path& folder, const Assets& assets,
                      bool swept);

}  // namespace kvcast::report
