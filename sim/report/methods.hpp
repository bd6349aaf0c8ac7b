// The page of methods: every assumption that the numbers of a report depend on, with its source.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "report/assets.hpp"

namespace kvcast::report {

// Writes FOLDER/methods.html: the assumptions of reports/methods.json by topic, and for each of these policies its
// paper, its conventions, its formulas, and its differences from the paper. Unknown names are left out.
void write_methods(const std::filesystem::path& folder, const Assets& assets, const std::set<std::string>& policies);

}  // namespace kvcast::report
