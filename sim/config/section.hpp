// Reads one YAML map key by key and rejects keys that no getter requested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// Every getter throws UserError (location, value found, value expected) for a missing key without default, a wrong
// type, a number with leading zeros, hexadecimal or non-finite numbers, and values out of range. Call finish() at the
// end.
class Section {
 public:
  // title: a name of the map for messages ("hardware profile").
  Section(const Node& map, std::string title);

  // Throws UserError for any other key. Called first, it reports a misspelt key as unknown rather than as missing.
  void only(const std::vector<std::string_view>& keys);
  // Throws UserError naming all of these that are missing.
  void require(const std::vector<std::string_view>& keys);

  bool has(std::string_view key);  // also makes the key known
  const SourceLocation& where() const { return map_.where(); }
  SourceLocation where(std::string_view key) const;

  std::string text(std::string_view key, std::optional<std::string> fallback = {});
  std::string choice(std::string_view key, const std::vector<std::string>& names,
                     std::optional<std::string> fallback = {});
  // Reads one of `names` into an enumeration that numbers them.
  template <typename Enum, typename Names>
  Enum one_of(std::string_view key, const Names& names, std::optional<Enum> fallback = {}) {
    std::optional<std::string> written;
    if (fallback) written = names[static_cast<std::size_t>(*fallback)];
    const std::string text = choice(key, {std::begin(names), std::end(names)}, written);
    return static_cast<Enum>(std::ranges::find(names, text) - std::begin(names));
  }
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high,
                       std::optional<std::int64_t> fallback = {});
  int count(std::string_view key, int low, int high, std::optional<int> fallback = {}) {
    return static_cast<int>(integer(key, low, high, fallback));
  }
  double number(std::string_view key, double low, double high, std::optional<double> fallback = {});
  double quantity(std::string_view key, Dimension dimension, double low, double high,
                  std::optional<double> fallback = {});
  bool flag(std::string_view key, std::optional<bool> fallback = {});
  // Reads `uncertainty:`, a share up to 10. A number from 1 on needs its % sign, since a bare 1 may be meant for
  // either.
  double uncertainty(std::optional<double> fallback = {});
  // Reads {value: 3.35 TB/s, origin: datasheet, uncertainty: 5 %, source: "..."}; value, origin and source are
  // required, and so is the uncertainty of an assumed number.
  Value value(std::string_view key, Dimension dimension, double low, double high);
  Section section(std::string_view key, std::string title);
  Node node(std::string_view key);  // required
  std::optional<Node> optional_node(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  std::vector<std::string> texts(std::string_view key, std::vector<std::string> fallback);
  std::vector<double> numbers(std::string_view key, double low, double high);

  // Throws UserError naming the first key that no getter requested, with all keys that were.
  void finish() const;

 private:
  const Node* take(std::string_view key, bool required);
  [[noreturn]] void refuse_missing(const std::vector<std::string>& missing) const;
  Node map_;
  std::string title_;
  std::vector<std::string> known_;
};

// An example of such a quantity: "40 GB".
std::string_view example_of(Dimension dimension);

// The scalar readers behind the getters, for values outside of maps.
std::int64_t read_integer(const Node& node, std::string_view what, std::int64_t low, std::int64_t high);
double read_number(const Node& node, std::string_view what, double low, double high);
double read_quantity(const Node& node, std::string_view what, Dimension dimension, double low, double high);
// Returns F for a factor such as x2 or x0.5; nothing for any other text. Throws UserError for a factor below 0.
std::optional<double> read_factor(const Node& node, std::string_view what);
// Reads a quantity, or a factor of `base`.
double read_change(const Node& node, std::string_view what, Dimension dimension, double low, double high, double base);
bool read_flag(const Node& node, std::string_view what);  // true or false, nothing else
std::string read_text(const Node& node, std::string_view what);

}  // namespace kvcast::config
