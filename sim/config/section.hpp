// Reads one YAML map key by key and refuses the keys that nobody asked for. While shapes are taken down
// (config/shape.hpp) every getter returns its default and notes what it was asked for.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "config/shape.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// Every getter throws UserError (place, what was found, what is expected) for a missing key without default, a wrong
// type, a number with leading zeros, hexadecimal or non-finite numbers, and values out of range. Call finish() at the
// end.
class Section {
 public:
  // title: what the map is, for messages ("hardware profile").
  Section(const Node& map, std::string title);

  // UserError for a key that is none of these. Called first, it tells of a misspelt key as unknown rather than missing.
  void only(const std::vector<std::string_view>& keys);
  // UserError naming all of these that are missing.
  void require(const std::vector<std::string_view>& keys);

  bool has(std::string_view key);  // also makes the key known
  const SourceLocation& where() const { return map_.where(); }
  SourceLocation where(std::string_view key) const;

  std::string text(std::string_view key);
  std::string text(std::string_view key, std::string fallback);
  std::string choice(std::string_view key, const std::vector<std::string>& names);
  std::string choice(std::string_view key, const std::vector<std::string>& names, std::string fallback);
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high,
                       std::optional<std::int64_t> fallback = {});
  double number(std::string_view key, double low, double high, std::optional<double> fallback = {});
  double quantity(std::string_view key, Dimension dimension, double low, double high,
                  std::optional<double> fallback = {});
  bool flag(std::string_view key, std::optional<bool> fallback = {});
  // {value: 3.35 TB/s, origin: datasheet, uncertainty: 5 %, source: "..."}; value, origin and source are required, and
  // the uncertainty of what is assumed.
  Value value(std::string_view key, Dimension dimension, double low, double high);
  Section section(std::string_view key, std::string title);
  Node node(std::string_view key);  // required
  std::optional<Node> optional_node(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  std::vector<std::string> texts(std::string_view key, std::vector<std::string> fallback);
  std::vector<double> numbers(std::string_view key, double low, double high);

  // UserError naming the first key that no getter asked for, with all that were.
  void finish() const;

 private:
  const Node* take(std::string_view key, bool required);
  // Notes what was asked for; whether shapes are taken down.
  bool notes(KeyShape key) const;
  [[noreturn]] void refuse_missing(const std::vector<std::string>& missing) const;
  Node map_;
  std::string title_;
  std::vector<std::string> known_;
};

// The scalar readers behind the getters, for values outside of maps.
std::int64_t read_integer(const Node& node, std::string_view what, std::int64_t low, std::int64_t high);
double read_number(const Node& node, std::string_view what, double low, double high);
double read_quantity(const Node& node, std::string_view what, Dimension dimension, double low, double high);
// F of a factor such as x2 or x0.5; nothing for any other text, UserError for a factor below 0.
std::optional<double> read_factor(const Node& node, std::string_view what);
// A quantity, or a factor of `base`.
double read_change(const Node& node, std::string_view what, Dimension dimension, double low, double high, double base);
bool read_flag(const Node& node, std::string_view what);  // true or false, nothing else
std::string read_text(const Node& node, std::string_view what);

}  // namespace kvcast::config
