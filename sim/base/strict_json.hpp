// Reads JSON by a grammar, event by event (SAX): a finished JSON tree no longer knows where its values were, keeps only
// the last of two equal keys, and grows with its input. Nesting never goes deeper than the grammar does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace kvcast {

// A position in the text: bytes from its start.
using TextOffset = std::size_t;
// Line and column of a position.
SourceLocation locate(std::string_view text, const std::string& file_name, TextOffset at);

enum class JsonType : std::uint8_t { kObject, kList, kString, kNumber, kWholeNumber };

// The part of the document that a value is: an index into the grammar. The document itself is part 0.
using JsonPart = std::uint8_t;

struct JsonKey {
  std::string_view name;
  JsonPart part;
  bool required;
};

struct JsonPartSpec {
  std::string_view name;  // for messages: "an op"
  JsonType type;
  std::span<const JsonKey> keys = {};  // of an object; at most 32
  // The part of a list's elements, or of the values of an object's keys that are not among `keys`; without it such keys
  // are errors.
  std::optional<JsonPart> element = {};
};
using JsonGrammar = std::span<const JsonPartSpec>;

// Numbers of a grammar are finite and not negative.
struct JsonNumber {
  double value = 0;
  std::optional<std::uint64_t> whole;  // set for a kWholeNumber
};

// Takes the values as they come. `at` is where the value, or the key, begins.
class JsonTaker {
 public:
  virtual ~JsonTaker() = default;
  virtual void begin(JsonPart part, TextOffset at) = 0;  // an object or a list
  virtual void end(JsonPart part, TextOffset at) = 0;    // `at`: where it began
  // A key of `object` that its specification does not list. Returns false if the object has it already.
  virtual bool free_key(JsonPart object, const std::string& name, TextOffset at) = 0;
  virtual void string(JsonPart part, const std::string& value, TextOffset at) = 0;
  virtual void number(JsonPart part, const JsonNumber& value, TextOffset at) = 0;
  // Throws UserError, with the location in the form that suits the file.
  [[noreturn]] virtual void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known) = 0;
};

// Malformed JSON, unknown, duplicate or missing keys and values of a wrong type or sign end in taker.fail().
void read_strict_json(std::string_view text, JsonGrammar grammar, JsonTaker& taker);

}  // namespace kvcast
