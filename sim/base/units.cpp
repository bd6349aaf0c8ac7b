// Units are a closed table: a quantity is a strict decimal number, optional blanks, and a unit of the table of its
// dimension. Nothing is guessed: "40 G", "40 gb" and "1,5 GB" are not quantities.

#include "base/units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

namespace kvcast {
namespace {

struct Unit {
  std::string_view name;
  double factor;
  bool for_output = true;  // format_quantity writes it; otherwise it is only read
};

constexpr double kKi = 1024.0;

// Units used for output ascend by factor.
constexpr Unit kByteUnits[] = {{"B", 1},
                               {"kB", 1e3},
                               {"KB", 1e3, false},
                               {"MB", 1e6},
                               {"GB", 1e9},
                               {"TB", 1e12},
                               {"PB", 1e15},
                               {"KiB", kKi, false},
                               {"MiB", kKi* kKi, false},
                               {"GiB", kKi* kKi* kKi, false},
                               {"TiB", kKi* kKi* kKi* kKi, false}};
constexpr Unit kByteRateUnits[] = {{"B/s", 1},
                                   {"kB/s", 1e3},
                                   {"KB/s", 1e3, false},
                                   {"MB/s", 1e6},
                                   {"GB/s", 1e9},
                                   {"TB/s", 1e12},
                                   {"PB/s", 1e15},
                                   {"KiB/s", kKi, false},
                                   {"MiB/s", kKi* kKi, false},
                                   {"GiB/s", kKi* kKi* kKi, false},
                                   {"TiB/s", kKi* kKi* kKi* kKi, false}};
constexpr Unit kFlopUnits[] = {{"FLOP", 1},    {"kFLOP", 1e3},  {"MFLOP", 1e6},
                               {"GFLOP", 1e9}, {"TFLOP", 1e12}, {"PFLOP", 1e15}};
constexpr Unit kFlopRateUnits[] = {{"FLOP/s", 1},    {"kFLOP/s", 1e3},  {"MFLOP/s", 1e6},
                                   {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
constexpr Unit kTimeUnits[] = {
    {"ps", 1e-12}, {"ns", 1e-9}, {"us", 1e-6}, {"\u00b5s", 1e-6, false}, {"\u03bcs", 1e-6, false},
    {"ms", 1e-3},  {"s", 1}};
constexpr Unit kFrequencyUnits[] = {{"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}};
constexpr Unit kFractionUnits[] = {{"%", 1e-2}, {"", 1, false}};
constexpr Unit kPlainUnits[] = {{"", 1}};

struct DimensionRow {
  std::string_view name;
  std::span<const Unit> units;
};
// By Dimension.
constexpr DimensionRow kDimensions[] = {
    {"number", kPlainUnits},    {"bytes", kByteUnits},   {"bytes/s", kByteRateUnits}, {"FLOP", kFlopUnits},
    {"FLOP/s", kFlopRateUnits}, {"seconds", kTimeUnits}, {"hertz", kFrequencyUnits},  {"fraction", kFractionUnits}};

std::span<const Unit> units_of(Dimension dimension) { return kDimensions[static_cast<std::size_t>(dimension)].units; }

std::size_t digits_at(std::string_view text, std::size_t from) {
  std::size_t n = 0;
  while (from + n < text.size() && text[from + n] >= '0' && text[from + n] <= '9') ++n;
  return n;
}

// Length of the number at the start of text, 0 if there is none: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?, the
// grammar of JSON, so that 010, 0x10, 1_000, +1, .5, inf and nan are not numbers.
std::size_t number_length(std::string_view text) {
  std::size_t end = !text.empty() && text[0] == '-' ? 1 : 0;
  const std::size_t whole = digits_at(text, end);
  if (whole == 0 || (whole > 1 && text[end] == '0')) return 0;
  end += whole;
  if (end < text.size() && text[end] == '.') {
    const std::size_t decimals = digits_at(text, end + 1);
    if (decimals == 0) return 0;
    end += 1 + decimals;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const bool sign = end + 1 < text.size() && (text[end + 1] == '-' || text[end + 1] == '+');
    const std::size_t start = end + (sign ? 2 : 1);
    const std::size_t exponent = digits_at(text, start);
    if (exponent == 0) return 0;
    end = start + exponent;
  }
  return end;
}

// Three significant digits without an exponent, trailing zeros dropped.
std::string three_digits(double x) {
  if (x == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(x))));
  if (magnitude < -4 || magnitude > 8) return fmt::format("{:.3g}", x);
  const int decimals = 2 - magnitude;
  if (decimals <= 0) {
    const double step = std::pow(10.0, -decimals);
    return fmt::format("{:.0f}", std::round(x / step) * step);
  }
  std::string text = fmt::format("{:.{}f}", x, decimals);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string format_digits(double value, int digits) {
  constexpr double kLongest = 1e15;
  const std::string text = fmt::format("{:.{}g}", value, digits);
  const bool shortened = text.find("e+") != std::string::npos && std::abs(value) < kLongest;
  return shortened ? fmt::format("{:.0f}", value) : text;
}

std::string_view dimension_name(Dimension dimension) { return kDimensions[static_cast<std::size_t>(dimension)].name; }

std::optional<double> parse_quantity(std::string_view text, Dimension dimension) {
  const std::size_t length = number_length(text);
  if (length == 0) return {};
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + length, number);
  if (failure != std::errc() || end != text.data() + length) return {};  // out of range of a double

  const std::size_t unit_start = text.find_first_not_of(' ', length);
  const std::string_view unit = unit_start == std::string_view::npos ? "" : text.substr(unit_start);
  if (unit.empty() && text.size() != length) return {};  // trailing blanks
  for (const Unit& known : units_of(dimension)) {
    if (unit != known.name) continue;
    // Dividing by a power of ten is exact to the last bit where multiplying by its inverse is not: 20 us is 2e-5.
    const double value = known.factor < 1 ? number / std::round(1 / known.factor) : number * known.factor;
    if (!std::isfinite(value)) return {};
    return value;
  }
  return {};
}

std::string quantity_pattern(Dimension dimension) {
  std::string names;
  bool bare = false;
  for (const Unit& unit : units_of(dimension)) {
    bare = bare || unit.name.empty();
    if (!unit.name.empty()) names += fmt::format("{}{}", names.empty() ? "" : "|", unit.name);
  }
  const std::string number = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
  if (names.empty()) return number;
  return fmt::format("{}( *({})){}", number, names, bare ? "?" : "");
}

std::string format_quantity(double value, Dimension dimension) {
  const Unit* chosen = nullptr;
  for (const Unit& unit : units_of(dimension)) {
    if (!unit.for_output) continue;
    // 999.5 of a unit would round to 1000, so the next unit is used.
    if (chosen == nullptr || std::abs(value) >= 0.9995 * unit.factor) chosen = &unit;
  }
  // Zero is shown in the base unit rather than in the smallest.
  if (value == 0 || !std::isfinite(value)) {
    for (const Unit& unit : units_of(dimension)) {
      if (unit.for_output && unit.factor == 1) chosen = &unit;
    }
  }
  const std::string number = std::isfinite(value) ? three_digits(value / chosen->factor) : fmt::format("{}", value);
  return chosen->name.empty() ? number : fmt::format("{} {}", number, chosen->name);
}

std::string format_seconds(double value) {
  std::string text = format_quantity(value, Dimension::kSeconds);
  if (text.ends_with(" us")) text.replace(text.size() - 2, 1, "\u00b5");
  return text;
}

std::string format_change(double value, int decimals) {
  const std::string text = fmt::format("{:+.{}f}", value, decimals);
  const bool zero = std::isfinite(value) && text.find_first_of("123456789") == std::string::npos;
  return zero ? text.substr(1) : text;
}

}  // namespace kvcast
