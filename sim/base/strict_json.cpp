#include "base/strict_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/counting_iterator.hpp"
#include "base/quote.hpp"

namespace kvcast {
namespace {

std::string_view type_name(JsonType type) {
  static constexpr std::string_view kTypes[] = {"an object", "a list", "a string", "a number", "a whole number"};
  return kTypes[static_cast<std::size_t>(type)];
}

// The parser calls the public functions, which return whether to continue; mistakes leave by exception.
class StrictReader {
 public:
  StrictReader(std::string_view text, JsonGrammar grammar, JsonTaker& taker)
      : text_(text), grammar_(grammar), taker_(taker), seen_(text.data()) {}

  void read() {
    const char* const end = text_.data() + text_.size();
    nlohmann::json::sax_parse(CountingIterator(seen_, &seen_), CountingIterator(end, &seen_), this);
  }

  bool null() { return wrong_type(start_of_word(), "null"); }
  bool boolean(bool value) { return wrong_type(start_of_word(), value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return number(static_cast<double>(value), {}); }
  bool number_unsigned(std::uint64_t value) { return number(static_cast<double>(value), value); }
  bool number_float(double value, const std::string&) { return number(value, {}); }
  bool string(const std::string& value);
  bool binary(const nlohmann::json::binary_t&) { return wrong_type(start_of_word(), "binary data"); }
  bool start_object(std::size_t) { return open(JsonType::kObject, "an object"); }
  bool end_object();
  bool start_array(std::size_t) { return open(JsonType::kList, "a list"); }
  bool end_array() { return close(); }
  bool key(const std::string& name);
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error);

 private:
  struct Open {  // an object or list that has begun
    JsonPart part;
    TextOffset at;
    std::uint32_t seen_keys = 0;  // bit i: the i-th key of the part
  };

  JsonPart current() const {
    if (open_.empty()) return 0;
    const JsonPartSpec& container = grammar_[open_.back().part];
    return container.type == JsonType::kList ? *container.element : key_part_;
  }
  TextOffset read_up_to() const { return static_cast<TextOffset>(seen_ - text_.data()); }
  TextOffset start_of_string() const;
  TextOffset start_of_word() const;
  [[noreturn]] void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known = {}) const {
    taker_.fail(at, what, known);
    std::abort();  // not reached; g++ ignores [[noreturn]] of virtual functions
  }
  bool wrong_type(TextOffset at, std::string_view found) const {
    const JsonPartSpec& expected = grammar_[current()];
    fail(at, fmt::format("{} must be {}, found {}", expected.name, type_name(expected.type), found));
  }
  bool open(JsonType type, const char* name);
  bool close();
  bool number(double value, std::optional<std::uint64_t> whole);
  [[noreturn]] void unknown_key(const std::string& name) const;

  std::string_view text_;
  JsonGrammar grammar_;
  JsonTaker& taker_;
  const char* seen_;  // end of what the parser has read
  std::vector<Open> open_;
  JsonPart key_part_ = 0;  // part that the last key announces
};

// The parser has just read the closing quote; a quote within the string has an odd number of backslashes before it.
TextOffset StrictReader::start_of_string() const {
  TextOffset at = read_up_to() - 1;
  while (at > 0) {
    --at;
    if (text_[at] != '"') continue;
    TextOffset backslash = at;
    while (backslash > 0 && text_[backslash - 1] == '\\') --backslash;
    if ((at - backslash) % 2 == 0) return at;
  }
  return 0;
}

// Start of a number, true, false or null; the parser may have read one character more.
TextOffset StrictReader::start_of_word() const {
  const auto of_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.';
  };
  TextOffset end = read_up_to();
  while (end > 0 && !of_word(text_[end - 1])) --end;
  while (end > 0 && of_word(text_[end - 1])) --end;
  return end;
}

bool StrictReader::open(JsonType type, const char* name) {
  const JsonPart part = current();
  const TextOffset at = read_up_to() - 1;
  if (grammar_[part].type != type) return wrong_type(at, name);
  open_.push_back({part, at});
  taker_.begin(part, at);
  return true;
}

bool StrictReader::close() {
  const Open closed = open_.back();
  open_.pop_back();
  taker_.end(closed.part, closed.at);
  return true;
}

bool StrictReader::end_object() {
  const Open& object = open_.back();
  const JsonPartSpec& spec = grammar_[object.part];
  for (std::size_t i = 0; i < spec.keys.size(); ++i) {
    if (spec.keys[i].required && !(object.seen_keys >> i & 1u)) {
      fail(object.at, fmt::format("{} lacks the key \"{}\"", spec.name, spec.keys[i].name));
    }
  }
  return close();
}

bool StrictReader::key(const std::string& name) {
  Open& object = open_.back();
  const JsonPartSpec& spec = grammar_[object.part];
  const auto found = std::find_if(spec.keys.begin(), spec.keys.end(), [&](const JsonKey& k) { return k.name == name; });
  bool is_new = true;
  if (found != spec.keys.end()) {
    const std::uint32_t bit = std::uint32_t{1} << (found - spec.keys.begin());
    is_new = !(object.seen_keys & bit);
    object.seen_keys |= bit;
    key_part_ = found->part;
  } else if (spec.element) {
    is_new = taker_.free_key(object.part, name, start_of_string());
    key_part_ = *spec.element;
  } else {
    unknown_key(name);
  }
  if (!is_new) fail(start_of_string(), "duplicate key " + quote(name));
  return true;
}

void StrictReader::unknown_key(const std::string& name) const {
  const JsonPartSpec& spec = grammar_[open_.back().part];
  std::vector<std::string> known;
  for (const JsonKey& k : spec.keys) known.emplace_back(k.name);
  fail(start_of_string(), fmt::format("unknown key {} in {}", quote(name), spec.name), known);
}

bool StrictReader::string(const std::string& value) {
  const JsonPart part = current();
  const TextOffset at = start_of_string();
  if (grammar_[part].type != JsonType::kString) return wrong_type(at, quote(value));
  taker_.string(part, value, at);
  return true;
}

bool StrictReader::number(double value, std::optional<std::uint64_t> whole) {
  const JsonPart part = current();
  const TextOffset at = start_of_word();
  const auto& [name, type, keys, element] = grammar_[part];
  if (type != JsonType::kNumber && type != JsonType::kWholeNumber) return wrong_type(at, fmt::format("{}", value));
  if (!std::isfinite(value)) fail(at, fmt::format("{} must be finite", name));
  if (value < 0) fail(at, fmt::format("{} must not be negative, found {}", name, value));
  if (type == JsonType::kWholeNumber && !whole) return wrong_type(at, fmt::format("{}", value));
  taker_.number(part, {value, whole}, at);
  return true;
}

bool StrictReader::parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...": the location is ours already.
  std::string what = escape_controls(error.what());  // repeats what was read, whatever bytes it has
  what.erase(0, what.find("] ") + 2);
  if (what.starts_with("parse error at line")) what.erase(0, what.find(": ") + 2);
  constexpr int kNumberOverflow = 406;
  if (error.id == kNumberOverflow) fail(start_of_word(), what);
  fail(read_up_to() == 0 ? 0 : read_up_to() - 1, what);
}

}  // namespace

SourceLocation locate(std::string_view text, const std::string& file_name, TextOffset at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const std::size_t line_break = before.rfind('\n');
  const std::size_t column = line_break == std::string_view::npos ? before.size() : before.size() - line_break - 1;
  return {file_name, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(column) + 1};
}

void read_strict_json(std::string_view text, JsonGrammar grammar, JsonTaker& taker) {
  StrictReader(text, grammar, taker).read();
}

}  // namespace kvcast
