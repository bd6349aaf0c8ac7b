#include "report/page.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace kvcast::report {

namespace fs = std::filesystem;
using nlohmann::json;

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  WholeFile file(path.string());
  write(file.stream());
  file.commit();
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UserError({folder.string(), 0, 0}, fmt::format("the folder cannot be made ({})", error.message()));
}

namespace {

// boost::replace_all would move all the text that follows, character by character, and a page has megabytes.
std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at; (at = text.find(from)) != text.npos; text.remove_prefix(at + 1))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

}  // namespace

std::string inside_script(std::string_view text) { return replaced(text, '<', "\\u003c"); }

std::string escape_html(std::string_view text) {
  return replaced(replaced(replaced(text, '&', "&amp;"), '<', "&lt;"), '>', "&gt;");
}

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string fill(const std::string& page, const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string filled;
  std::size_t from = 0;
  for (const auto& [marker, text] : parts) {
    const std::size_t at = page.find(marker, from);
    if (at == std::string::npos)
      throw UserError(fmt::format("the report's page template lacks {}, or has it in another order", marker));
    filled += page.substr(from, at - from) + text;
    from = at + marker.size();
  }
  return filled + page.substr(from);
}

}  // namespace kvcast::report
