// The keys that a reader asks for, taken down while it reads: what a JSON schema is made from, so that it cannot say
// anything else than the reader.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::config {

struct KeyShape {
  // kAny: only the key is known, because another reader takes its value.
  enum class Type { kAny, kText, kInteger, kNumber, kQuantity, kFlag, kList, kMap };

  std::string key;
  Type type = Type::kAny;
  std::optional<double> low = {}, high = {};  // of numbers, in base units
  std::string example = {};                   // of a quantity: "40 GB"
  std::vector<std::string> choices = {};      // of a text; empty: any
  std::optional<std::string> fallback = {};   // as it would be written
  bool required = false;
};

using Shapes = std::map<std::string, std::vector<KeyShape>>;  // title of a map → its keys, in the order of asking

// Runs a reader on maps that have no keys, and on maps that have every key, and returns what it asked for. Getters of
// Section return defaults meanwhile; a UserError ends the reader, and what it asked for until then counts.
Shapes shapes_of(const std::function<void()>& reader);

namespace shape {

// Whether readers are taken down on this thread.
bool is_recording();
// Whether maps have every key.
bool has_all();
// Adds to what is known about the key, whose `key` and `type` are set.
void note(const std::string& title, KeyShape key);

}  // namespace shape

}  // namespace kvcast::config
