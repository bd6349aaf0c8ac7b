// Keys as the reference of keys and the JSON schemas list them.
#pragma once

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
  std::string about = {};  // meaning, for the reference (`kvcast keys`); empty where the table states none
};

using Shapes = std::map<std::string, std::vector<KeyShape>>;  // title of a map → its keys, in their table's order

}  // namespace kvcast::config
