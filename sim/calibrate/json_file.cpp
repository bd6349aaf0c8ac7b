#include "calibrate/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/counting_iterator.hpp"
#include "base/error.hpp"
#include "base/quote.hpp"
#include "base/strict_json.hpp"
#include "base/whole_file.hpp"

namespace kvcast::calibrate {
namespace {

using nlohmann::json;

// Describes the text that the parser cannot read at this position.
std::string stumbled_over(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return "the file ends too early";
  const auto byte = static_cast<unsigned char>(text[offset]);
  if (byte <= ' ' || byte >= 0x7F) return fmt::format("unexpected byte 0x{:02x}", byte);
  return fmt::format("unexpected '{}'", text[offset]);
}

// Keys of the objects that are open, to find duplicates.
class OpenKeys {
 public:
  // Returns false for a key that its object has already.
  bool take(json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    return event != json::parse_event_t::key || open_.back().insert(value.get<std::string>()).second;
  }

 private:
  std::vector<std::set<std::string>> open_;
};

}  // namespace

json read_json_file(const std::string& path, const std::string& what) {
  const std::string text = read_whole_file(path, what);
  const char* const end = text.data() + text.size();
  const char* seen = text.data();
  const auto before_seen = [&] { return std::max(seen - text.data() - 1, std::ptrdiff_t{0}); };
  OpenKeys keys;
  const auto check = [&](int, json::parse_event_t event, json& value) {
    if (keys.take(event, value)) return true;
    const std::size_t quotation_mark = text.rfind('"', before_seen() - 1);  // the one that opens the key
    throw UserError(locate(text, path, quotation_mark), "duplicate key " + quote(value.get<std::string>()));
  };
  try {
    return json::parse(CountingIterator(seen, &seen), CountingIterator(end, &seen), check);
  } catch (const json::parse_error& error) {
    const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    throw UserError(locate(text, path, offset), "not JSON: " + stumbled_over(text, offset));
  } catch (const json::exception&) {  // a number beyond the largest, the only other error of parsing
    throw UserError(locate(text, path, before_seen()), "not JSON: a number is too large");
  }
}

}  // namespace kvcast::calibrate
