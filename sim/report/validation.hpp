// The validation page: what `kvcast validate -o DIR` found, as a reader checks it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "report/assets.hpp"

namespace kvcast::report {

// The document with what the page needs of it; UserError naming the file and the part for anything else.
nlohmann::json read_validation(const std::string& path);

// Writes FOLDER/validation.html and FOLDER/tables/validation.csv; FOLDER/index.html as well unless `swept`, where the
// page of a sweep has that place and is linked.
void write_validation(const nlohmann::json& document, const std::filesystem::path& folder, const Assets& assets,
                      bool swept);

}  // namespace kvcast::report
