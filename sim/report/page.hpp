// Pages and files: a template filled, texts made safe where they land, files replaced at once.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace kvcast::report {

// Written beside its place and moved there, so that whoever opens the file sees the old one or the new one. UserError
// where it cannot be written.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);
void make_folder(const std::filesystem::path& folder);

// JSON inside a script element. An HTML parser ends a script at "</script" wherever it stands; in JSON "<" stands
// inside strings only, where it can be written as an escape that means the same.
std::string inside_script(std::string text);
std::string escape_html(std::string text);
std::string dump(const nlohmann::json& value);

// Each marker stands once in the template, in this order. Searching goes on behind what was put in, so no marker inside
// the texts themselves is ever replaced.
std::string fill(const std::string& page, const std::vector<std::pair<std::string, std::string>>& parts);

}  // namespace kvcast::report
