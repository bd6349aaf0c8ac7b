// Recursive descent over RFC 8259; numbers by std::to_chars and std::from_chars, which are exact and ignore the locale.
#include "harness/json.hpp"

#include <charconv>
#include <cmath>
#include <stdexcept>

namespace kvcast::kernels {

namespace {

void write_string(std::string& out, const std::string& s) {
  out += '"';
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      static const char* hex = "0123456789abcdef";
      out += "\\u00";
      out += hex[(c >> 4) & 15];
      out += hex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <typename T>
void write_number(std::string& out, T v) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v);
  out.append(buffer, end.ptr);
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Json document() {
    Json value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("text after the end of the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    std::size_t line = 1;
    for (std::size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    throw std::runtime_error(name_ + ":" + std::to_string(line) + ": " + what);
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char peek() {
    skip_space();
    if (at_ >= text_.size()) fail("the text ends inside a value");
    return text_[at_];
  }
  void expect(char c) {
    if (peek() != c) fail(std::string("expected '") + c + "', found '" + text_[at_] + "'");
    ++at_;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json parse_value(int depth) {
    if (depth > 64) fail("nested deeper than 64");
    const char c = peek();
    if (c == '{') return parse_object(depth);
    if (c == '[') return parse_array(depth);
    if (c == '"') return Json(parse_string());
    if (take_word("true")) return Json(true);
    if (take_word("false")) return Json(false);
    if (take_word("null")) return Json();
    return parse_number();
  }
  Json parse_object(int depth) {
    Json object = Json::object();
    expect('{');
    if (peek() == '}') return ++at_, object;
    while (true) {
      if (peek() != '"') fail("expected a member name");
      const std::string key = parse_string();
      if (object.find(key)) fail("member '" + key + "' twice");
      expect(':');
      object[key] = parse_value(depth + 1);
      if (peek() == '}') return ++at_, object;
      expect(',');
    }
  }
  Json parse_array(int depth) {
    Json array = Json::array();
    expect('[');
    if (peek() == ']') return ++at_, array;
    while (true) {
      array.push(parse_value(depth + 1));
      if (peek() == ']') return ++at_, array;
      expect(',');
    }
  }
  std::string parse_string() {
    std::string out;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') return ++at_, out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character inside a string");
      out += c == '\\' ? parse_escape() : c;
    }
    fail("a string without its end");
  }
  // Only escapes below U+0080: the writer makes no others, and other characters are written as UTF-8.
  char parse_escape() {
    if (++at_ >= text_.size()) fail("a string without its end");
    static constexpr std::string_view kShort = "\"\\/bfnrt";
    static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
    const std::size_t which = kShort.find(text_[at_]);
    if (which != std::string_view::npos) return kMeaning[which];
    unsigned code = 0;
    const char* from = text_.data() + at_ + 1;
    if (text_[at_] != 'u' || at_ + 4 >= text_.size()) fail("an unknown escape");
    const auto [end, error] = std::from_chars(from, from + 4, code, 16);
    if (error != std::errc() || end != from + 4 || code >= 0x80) fail("an unknown escape");
    at_ += 4;
    return static_cast<char>(code);
  }
  Json parse_number() {
    const std::size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos) ++at_;
    const char* begin = text_.data() + start;
    const char* end = text_.data() + at_;
    if (begin == end) fail(std::string("unexpected '") + text_[at_] + "'");
    std::int64_t whole = 0;
    const auto integer = std::from_chars(begin, end, whole);
    if (integer.ec == std::errc() && integer.ptr == end) return Json(whole);
    double real = 0;
    const auto floating = std::from_chars(begin, end, real);
    if (floating.ec != std::errc() || floating.ptr != end) fail("not a number: " + std::string(begin, end));
    return Json(real);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

Json& Json::operator[](const std::string& name) {
  if (is_null()) value_ = Members{};
  Members& members = std::get<Members>(value_);
  for (auto& [key, value] : members) {
    if (key == name) return value;
  }
  return members.emplace_back(name, Json()).second;
}

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : members()) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Json::push(Json element) { std::get<Array>(value_).push_back(std::move(element)); }

const Json::Array& Json::elements() const {
  static const Array none;
  const Array* array = std::get_if<Array>(&value_);
  return array ? *array : none;
}

const Json::Members& Json::members() const {
  static const Members none;
  const Members* members = std::get_if<Members>(&value_);
  return members ? *members : none;
}

std::string Json::text() const { return is_string() ? std::get<std::string>(value_) : std::string(); }

double Json::number(double other) const {
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  return other;
}

void Json::write(std::string& out, int indent, int depth) const {
  const auto line = [&](int level) {
    if (indent >= 0) out += "\n" + std::string(static_cast<std::size_t>(indent * level), ' ');
  };
  if (const auto* flag = std::get_if<bool>(&value_)) return void(out += *flag ? "true" : "false");
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return write_number(out, *whole);
  if (const auto* real = std::get_if<double>(&value_)) {
    return std::isfinite(*real) ? write_number(out, *real) : void(out += "null");
  }
  if (is_string()) return write_string(out, std::get<std::string>(value_));
  if (is_null()) return void(out += "null");
  const bool is_array = std::holds_alternative<Array>(value_);
  const bool empty = is_array ? elements().empty() : members().empty();
  out += is_array ? '[' : '{';
  bool first = true;
  for (const Json& element : elements()) {
    out += first ? "" : ",";
    line(depth + 1);
    element.write(out, indent, depth + 1);
    first = false;
  }
  for (const auto& [key, value] : members()) {
    out += first ? "" : ",";
    line(depth + 1);
    write_string(out, key);
    out += indent >= 0 ? ": " : ":";
    value.write(out, indent, depth + 1);
    first = false;
  }
  if (!empty) line(depth);
  out += is_array ? ']' : '}';
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

Json Json::parse(std::string_view text, const std::string& name) { return Parser(text, name).document(); }

}  // namespace kvcast::kernels
