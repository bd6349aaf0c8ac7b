#include "traffic/json_object.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/quote.hpp"
#include "config/framework.hpp"

namespace kvcast::traffic {
namespace {

// The place that the parser has reached, and the start of the word, number or string that it has read last.
struct Position {
  int line = 1, column = 0;
  int word_line = 1, word_column = 1;
  bool in_string = false, escaped = false, in_word = false;

  void see(char c) {
    if (c == '\n') {
      ++line, column = 0;
    } else {
      ++column;
    }
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      return;
    }
    const bool of_word = std::string_view(" \t\r\n,:[]{}").find(c) == std::string_view::npos;
    const bool opens = c == '[' || c == '{';
    if ((of_word && !in_word) || opens) word_line = line, word_column = column;
    in_string = c == '"';
    in_word = of_word && !in_string;
  }
};

// Characters of a stream that are seen once; the parser does not report positions of values.
class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  Characters(std::streambuf* text, Position* at) : text_(text), at_(at) {}
  char operator*() const { return std::char_traits<char>::to_char_type(text_->sgetc()); }
  Characters& operator++() {
    at_->see(**this);
    text_->sbumpc();
    return *this;
  }
  bool operator==(const Characters& other) const { return ends() == other.ends(); }
  bool operator!=(const Characters& other) const { return !(*this == other); }

 private:
  bool ends() const { return text_ == nullptr || text_->sgetc() == std::char_traits<char>::eof(); }
  std::streambuf* text_;  // null: the end
  Position* at_;
};

class Handler {
 public:
  Handler(const SourceLocation& begin, std::span<const std::string_view> keys, std::vector<JsonObject::Value>& values)
      : begin_(begin), keys_(keys), values_(values) {}

  Position at;

  bool null() { return depth_ < 2 || key_ == kOther ? scalar() : wrong("null"); }
  bool boolean(bool) { return wrong("true or false"); }
  bool number_integer(std::int64_t value) { return number({static_cast<double>(value), {}}); }
  bool number_unsigned(std::uint64_t value) { return number({static_cast<double>(value), value}); }
  bool number_float(double value, const std::string&) {
    return std::isfinite(value) ? number({value, {}}) : wrong("a number that is too large");
  }
  bool string(const std::string& text) {
    if (key_ == kOther && depth_ > 0) return true;
    if (depth_ != 1) return wrong("a string");
    JsonObject::Value& value = wanted();
    value.present = true, value.text = text;
    return true;
  }
  bool binary(const nlohmann::json::binary_t&) { return false; }  // never in text
  bool start_object(std::size_t) { return depth_ == 0 || key_ == kOther ? open() : wrong("an object"); }
  bool start_array(std::size_t) {
    if (depth_ == 0 || (depth_ > 1 && key_ != kOther)) return wrong("a list");
    if (key_ != kOther) wanted().present = wanted().list = true;
    return open();
  }
  bool end_object() { return --depth_, true; }
  bool end_array() { return --depth_, true; }
  bool key(const std::string& name) {
    if (depth_ > 1) return true;
    key_ = static_cast<std::size_t>(std::ranges::find(keys_, name) - keys_.begin());
    if (key_ == keys_.size()) {
      key_ = kOther;
      return true;
    }
    if (values_[key_].where.line > 0) fail("the key " + quote(name) + " occurs twice");
    values_[key_].where = word();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...; last read: ..."
    std::string what = error.what();
    what.resize(std::min(what.find("; last read"), what.size()));
    what.erase(0, what.find("] ") + 2);
    if (what.starts_with("parse error at line")) what.erase(0, what.find(": ") + 2);
    throw UserError({begin_.file, begin_.line + at.line - 1, std::max(1, at.column)},
                    escape_controls(what.substr(0, 200)));
  }

 private:
  static constexpr std::size_t kOther = static_cast<std::size_t>(-1);

  JsonObject::Value& wanted() { return values_[key_]; }
  SourceLocation word() const { return {begin_.file, begin_.line + at.word_line - 1, at.word_column}; }
  [[noreturn]] void fail(const std::string& what) const { throw UserError(word(), what); }
  bool open() { return ++depth_, true; }
  bool scalar() const {
    if (depth_ == 0) fail("expected an object {...}");
    return true;
  }
  // Throws UserError unless the value is skipped.
  bool wrong(const char* found) const {
    if (depth_ > 0 && key_ == kOther) return true;
    if (depth_ == 0) fail("expected an object {...}");
    fail(fmt::format("{}: expected {}, found {}", keys_[key_], depth_ > 1 ? "a number" : "another type of value",
                     found));
  }
  bool number(const JsonObject::Number& number) {
    if (depth_ == 0) return scalar();
    if (key_ == kOther) return true;
    if (!wanted().list) wanted().where = word();
    wanted().present = true;
    wanted().numbers.push_back(number);
    return true;
  }

  const SourceLocation& begin_;
  std::span<const std::string_view> keys_;
  std::vector<JsonObject::Value>& values_;
  std::size_t key_ = kOther;  // of the object; values within it belong to it as well
  std::size_t depth_ = 0;
};

struct LineBuffer : std::streambuf {
  explicit LineBuffer(std::string& line) { setg(line.data(), line.data(), line.data() + line.size()); }
};

}  // namespace

JsonObject::JsonObject(std::streambuf& text, const SourceLocation& begin, std::span<const std::string_view> keys)
    : begin_(begin), keys_(keys), values_(keys.size()) {
  read(text);
}

JsonObject::JsonObject(std::string& line, const SourceLocation& begin, std::span<const std::string_view> keys)
    : begin_(begin), keys_(keys), values_(keys.size()) {
  LineBuffer text(line);
  read(text);
}

void JsonObject::read(std::streambuf& text) {
  Handler handler(begin_, keys_, values_);
  nlohmann::json::sax_parse(Characters(&text, &handler.at), Characters(nullptr, nullptr), &handler);
}

const JsonObject::Value& JsonObject::value(std::string_view key) const {
  const auto at = std::ranges::find(keys_, key) - keys_.begin();
  KVCAST_CHECK(static_cast<std::size_t>(at) < values_.size());
  return values_[static_cast<std::size_t>(at)];
}

const JsonObject::Value& JsonObject::required(std::string_view key) const {
  const Value& found = value(key);
  if (!found.present) throw UserError(begin_, fmt::format("the key \"{}\" is missing", key));
  return found;
}

double JsonObject::number(std::string_view key) const {
  const Value& found = required(key);
  if (!found.list && !found.numbers.empty()) return found.numbers.front().value;
  throw UserError(found.where, fmt::format("{}: expected a number", key));
}

std::uint64_t JsonObject::whole(std::string_view key) const {
  number(key);
  const Value& found = value(key);
  if (found.numbers.front().whole) return *found.numbers.front().whole;
  throw UserError(found.where, fmt::format("{}: expected a whole number that is not negative", key));
}

std::int64_t JsonObject::tokens(std::string_view key) const {
  number(key);
  return tokens_in(value(key).numbers.front(), key, value(key).where);
}

const JsonObject::Value& JsonObject::list(std::string_view key) const {
  const Value& found = required(key);
  if (found.list) return found;
  throw UserError(found.where, fmt::format("{}: expected a list of numbers", key));
}

std::int64_t tokens_in(const JsonObject::Number& number, std::string_view name, const SourceLocation& where) {
  const double value = number.value;
  if (value >= 0 && value <= static_cast<double>(config::kMaxTokens) && value == std::floor(value)) {
    return static_cast<std::int64_t>(value);
  }
  throw UserError(
      where, fmt::format("{}: expected a whole number between 0 and {}, found {}", name, config::kMaxTokens, value));
}

}  // namespace kvcast::traffic
