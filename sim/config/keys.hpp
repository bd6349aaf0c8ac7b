// Tables of keys: a row has the name of a key, the member that it fills, its meaning and its limits. Readers read maps
// by these rows; the reference of keys and the JSON schemas list the same rows.
#pragma once

#include <algorithm>
#include <iterator>
#include <limits>
#include <type_traits>

#include "config/section.hpp"
#include "config/shape.hpp"

namespace kvcast::config {

template <class Owner>
struct Key;

struct Limits {
  double low = std::numeric_limits<double>::lowest(), high = std::numeric_limits<double>::max();
  Dimension dimension = Dimension::kNone;
};

// The member that a key fills, and the way to read it. A key without `read` is left to the reader of its map.
template <class Owner>
struct Slot {
  KeyShape::Type type = KeyShape::Type::kAny;
  void (*read)(Section&, const Key<Owner>&, Owner&) = nullptr;
  const char* fallback = nullptr;                 // default of what is no member, for the reference
  std::vector<std::string> (*names)() = nullptr;  // choices, or values of an enumeration in their order
  Limits limits = {};
  bool required = false;                 // otherwise the member's value is the default
  bool apart = false;                    // read by its name, not with the others
  bool (*when)(const Owner&) = nullptr;  // maps have the key if this holds for what was read before
  std::optional<std::string> (*text)(const Key<Owner>&, const Owner&) = nullptr;  // the value as it would be written
  void (*copy)(const Owner& from, Owner& to) = nullptr;
};

template <class Owner>
struct Key {
  std::string_view name;
  Slot<Owner> slot = {};
  std::string_view about = {};
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <class T>
constexpr KeyShape::Type type_of() {
  using Type = KeyShape::Type;
  if constexpr (kIsOptional<T>) return type_of<typename T::value_type>();
  if constexpr (std::is_same_v<T, bool>) return Type::kFlag;
  if constexpr (std::is_integral_v<T>) return Type::kInteger;
  if constexpr (std::is_same_v<T, double>) return Type::kNumber;
  if constexpr (std::is_same_v<T, std::string> || std::is_enum_v<T>) return Type::kText;
  if constexpr (std::is_same_v<T, Value>) return Type::kValue;
  return std::is_same_v<T, std::vector<std::string>> ? Type::kList : Type::kMap;
}

// Reads a key into `value`, which is its default unless the key is required. Optional values, and numbers with an
// origin, stay as they are without the key.
template <class Owner, class T>
void read_key(Section& section, const Key<Owner>& key, T& value) {
  const auto& [low, high, dimension] = key.slot.limits;
  const auto names = key.slot.names;
  std::optional<T> fallback;
  if (!key.slot.required) fallback = value;
  if constexpr (kIsOptional<T>) {
    if (!section.has(key.name)) return;
    Key<Owner> present = key;
    present.slot.required = true;
    read_key(section, present, value.emplace());
  } else if constexpr (std::is_same_v<T, Value>) {
    if (section.has(key.name)) value = section.value(key.name, dimension, low, high);
  } else if constexpr (std::is_same_v<T, bool>) {
    value = names == nullptr ? section.flag(key.name, fallback) : section.one_of<T>(key.name, names(), fallback);
  } else if constexpr (std::is_enum_v<T>) {
    value = section.one_of<T>(key.name, names(), fallback);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = names == nullptr ? section.text(key.name, fallback) : section.choice(key.name, names(), fallback);
  } else if constexpr (std::is_integral_v<T>) {
    constexpr double kEnd = 9.2e18;
    const std::int64_t most = high > kEnd ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(high);
    value = static_cast<T>(section.integer(key.name, static_cast<std::int64_t>(low), most, fallback));
  } else if constexpr (std::is_same_v<T, double>) {
    value = section.quantity(key.name, dimension, low, high, fallback);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    value = section.texts(key.name, value);
  }
}

// Nothing for what is not set, or not written as one text.
template <class Owner, class T>
std::optional<std::string> text_of(const Key<Owner>& key, const T& value) {
  if constexpr (kIsOptional<T>) {
    return value ? text_of(key, *value) : std::nullopt;
  } else if constexpr (std::is_enum_v<T>) {
    return key.slot.names()[static_cast<std::size_t>(value)];
  } else if constexpr (std::is_same_v<T, bool>) {
    return key.slot.names == nullptr ? fmt::format("{}", value) : key.slot.names()[value ? 1 : 0];
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return fmt::format("{}", value);
  } else {
    return {};
  }
}

template <class Owner, class T>
Owner owner_of(T Owner::*);
template <class Owner, class T>
T value_of(T Owner::*);

// A member as a slot; one that is required; and what is no member, with its default as it would be written.
template <auto Member, bool Required = false, class Owner = decltype(owner_of(Member))>
inline constexpr Slot<Owner> into = {
    .type = type_of<decltype(value_of(Member))>(),
    .read = [](Section& section, const Key<Owner>& key, Owner& owner) { read_key(section, key, owner.*Member); },
    .required = Required,
    .text = [](const Key<Owner>& key, const Owner& owner) { return text_of(key, owner.*Member); },
    .copy = [](const Owner& from, Owner& to) { to.*Member = from.*Member; }};
template <auto Member>
inline constexpr auto need = into<Member, true>;
template <class Owner>
constexpr Slot<Owner> own(KeyShape::Type type, const char* fallback = nullptr) {
  return {type, nullptr, fallback};
}

// Slots with limits, names, a condition, a reader of their own, or apart from the others.
template <class Owner>
constexpr Slot<Owner> within(Limits limits, Slot<Owner> slot) {
  return slot.limits = limits, slot;
}
template <class Owner>
constexpr Slot<Owner> within(double low, double high, Slot<Owner> slot) {
  return slot.limits = {low, high}, slot;
}
template <const auto& Names, class Owner>
constexpr Slot<Owner> among(Slot<Owner> slot) {
  if constexpr (std::is_function_v<std::remove_reference_t<decltype(Names)>>)
    return slot.names = Names, slot;
  else
    return slot.names = [] { return std::vector<std::string>(std::begin(Names), std::end(Names)); }, slot;
}
template <class Owner>
constexpr Slot<Owner> when(std::type_identity_t<bool (*)(const Owner&)> holds, Slot<Owner> slot) {
  return slot.when = holds, slot;
}
template <class Owner>
constexpr Slot<Owner> by(void (*read)(Section&, const Key<Owner>&, Owner&), Slot<Owner> slot) {
  return slot.read = read, slot;
}
template <class Owner>
constexpr Slot<Owner> apart(Slot<Owner> slot) {
  return slot.apart = true, slot;
}

// Reads the keys that a map has, in the table's order.
template <class Rows, class Owner>
void read_keys(Section& section, const Rows& keys, Owner& owner) {
  for (const Key<Owner>& key : keys) {
    if (key.slot.read != nullptr && !key.slot.apart && (key.slot.when == nullptr || key.slot.when(owner)))
      key.slot.read(section, key, owner);
  }
}

// Reads one that is apart, of at most `most`.
template <class Rows, class Owner>
void read_apart(Section& section, const Rows& keys, std::string_view name, Owner& owner,
                std::optional<double> most = {}) {
  Key<Owner> key = *std::ranges::find_if(keys, [&](const Key<Owner>& k) { return k.name == name; });
  if (most) key.slot.limits.high = *most;
  key.slot.read(section, key, owner);
}

// Reads a map within a map, all of whose keys are in the table.
template <class Rows, class Owner>
Section read_map(Section& section, std::string_view name, const Rows& keys, Owner& owner) {
  Section map = section.section(name, std::string(name));
  read_keys(map, keys, owner);
  map.finish();
  return map;
}

// Calls visit(name, text) for the keys that have an effect.
template <class Rows, class Owner, class Visit>
void for_each_text(const Rows& keys, const Owner& owner, const Visit& visit) {
  for (const Key<Owner>& key : keys) {
    if (key.slot.text == nullptr || (key.slot.when != nullptr && !key.slot.when(owner))) continue;
    if (const auto text = key.slot.text(key, owner)) visit(std::string(key.name), *text);
  }
}

// Throws UserError for any other key, and for required ones that are missing.
template <class Rows>
void check_keys(Section& section, const Rows& keys) {
  std::vector<std::string_view> names, required;
  for (const auto& key : keys) {
    names.push_back(key.name);
    if (key.slot.required) required.push_back(key.name);
  }
  section.only(names);
  section.require(required);
}

template <class Owner>
KeyShape shape_of(const Key<Owner>& key) {
  using Type = KeyShape::Type;
  const auto& [low, high, dimension] = key.slot.limits;
  KeyShape shape{.key = std::string(key.name), .type = key.slot.type};
  if (shape.type == Type::kNumber && dimension != Dimension::kNone) shape.type = Type::kQuantity;
  if (key.slot.names != nullptr) shape.type = Type::kText;
  if (low > Limits().low) shape.low = low;
  if (high < Limits().high) shape.high = high;
  shape.dimension = dimension;
  if (shape.type == Type::kQuantity || shape.type == Type::kValue) shape.example = example_of(dimension);
  if (key.slot.names != nullptr) shape.choices = key.slot.names();
  if (key.slot.text != nullptr && !key.slot.required) shape.fallback = key.slot.text(key, Owner());
  if (key.slot.fallback != nullptr) shape.fallback = key.slot.fallback;
  shape.required = key.slot.required && !key.slot.apart && key.slot.when == nullptr;
  shape.about = key.about;
  return shape;
}

// The rows for the reference and the schemas.
template <class Rows>
std::vector<KeyShape> shapes_in(const Rows& keys) {
  std::vector<KeyShape> shapes;
  for (const auto& key : keys) shapes.push_back(shape_of(key));
  return shapes;
}

// The tables of each file, by the titles of the maps.
Shapes workload_shapes(), deployment_shapes(), speculation_shapes(), framework_shapes(), scheduler_shapes(),
    traffic_shapes(), model_shapes(), compressed_shapes();

}  // namespace kvcast::config
