// Records the keys that a reader requests: JSON schemas are made from the record, so that they cannot disagree with the
// reader.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace kvcast::config {

struct KeyShape {
  // kAny: only the key is known, because another reader takes its value. kValue: a quantity with its origin.
  enum class Type { kAny, kText, kInteger, kNumber, kQuantity, kValue, kFlag, kList, kMap };

  std::string key = {};
  Type type = Type::kAny;
  std::optional<double> low = {}, high = {};  // limits of numbers, in base units
  Dimension dimension = Dimension::kNone;     // of a quantity or a value
  std::string example = {};                   // example of a quantity or a value: "40 GB"
  std::vector<std::string> choices = {};      // choices of a text; empty: any
  std::optional<std::string> fallback = {};   // default, as it would be written
  bool required = false;
  std::string about = {};  // meaning, for the reference (`kvcast keys`); empty where the reader states none
};

using Shapes = std::map<std::string, std::vector<KeyShape>>;  // title of a map → its keys, in the order of requests

// Runs a reader on maps that have no keys, and on maps that have every key, and returns the keys that it requested.
// Meanwhile getters of Section return defaults; a UserError ends the reader, and its requests until then count.
Shapes shapes_of(const std::function<void()>& reader);

namespace shape {

// Returns whether a schema is being recorded on this thread.
bool is_recording();
// Returns whether the recorded maps pretend to have every key.
bool has_all();
// Adds to the record of the key, whose `key` and `type` are set.
void note(const std::string& title, KeyShape key);

}  // namespace shape

}  // namespace kvcast::config
