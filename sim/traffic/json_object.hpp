// A JSON object of a trace, of which some keys are wanted and all others skipped without being kept.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace kvcast::traffic {

class JsonObject {
 public:
  struct Number {
    double value = 0;
    std::optional<std::uint64_t> whole;  // of a whole number that is not negative, exact
  };
  struct Value {
    bool present = false, list = false;
    std::vector<Number> numbers;  // one, or those of a list
    std::string text;             // of a string; has no numbers
    SourceLocation where;
  };

  // Reads one object from its start to the end of the text. The values of wanted keys are numbers, strings or lists of
  // numbers; null is a missing key. Throws UserError for anything else, located from `begin` on. keys outlive the call.
  JsonObject(std::streambuf& text, const SourceLocation& begin, std::span<const std::string_view> keys);
  JsonObject(std::string& line, const SourceLocation& begin, std::span<const std::string_view> keys);

  bool has(std::string_view key) const { return value(key).present; }
  // The value of a key that was wanted.
  const Value& value(std::string_view key) const;
  // Throw UserError for a missing key and for another type of value.
  double number(std::string_view key) const;
  std::uint64_t whole(std::string_view key) const;
  std::int64_t tokens(std::string_view key) const;  // up to config::kMaxTokens
  const Value& list(std::string_view key) const;

 private:
  void read(std::streambuf& text);
  const Value& required(std::string_view key) const;

  SourceLocation begin_;
  std::span<const std::string_view> keys_;
  std::vector<Value> values_;
};

// Returns a number as tokens. Throws UserError at `where` unless it is whole and at most config::kMaxTokens.
std::int64_t tokens_in(const JsonObject::Number& number, std::string_view name, const SourceLocation& where);

}  // namespace kvcast::traffic
