// Pages and files: fills templates, escapes texts for their context in the page, replaces files atomically.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcast::report {

// Writes a temporary file and renames it into place, so that readers see the old file or the new one. Throws UserError
// if it cannot be written.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);
void make_folder(const std::filesystem::path& folder);

// Escapes JSON for a script element. An HTML parser ends a script at "</script" anywhere; JSON contains "<" only inside
// strings, where it can be written as an equivalent escape.
std::string inside_script(std::string_view text);
std::string escape_html(std::string_view text);
std::string dump(const nlohmann::json& value);

// Each marker occurs once in the template, in this order. The search continues after the inserted text, so no marker
// inside the texts themselves is ever replaced.
std::string fill(const std::string& page, const std::vector<std::pair<std::string, std::string>>& parts);

}  // namespace kvcast::report
