// Quantities with units as users write them, and the engine's clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvcast {

// Simulated time in integer picoseconds: sums are exact and order does not matter. 2^63 ps are 106 days.
using Picoseconds = std::int64_t;
inline constexpr double kPicosPerSecond = 1e12;
inline Picoseconds to_picos(double seconds) {
  return static_cast<Picoseconds>(seconds * kPicosPerSecond + (seconds < 0 ? -0.5 : 0.5));
}
inline double to_seconds(Picoseconds t) { return static_cast<double>(t) / kPicosPerSecond; }

enum class Dimension { kNone, kBytes, kBytesPerSecond, kFlops, kFlopPerSecond, kSeconds, kHertz, kFraction };

// "bytes", "bytes/s", ...: for messages.
std::string_view dimension_name(Dimension dimension);

// Parses "3.35 TB/s", "40 GiB", "2 us", "1410 MHz", "312 TFLOP/s" or "5 %" into the base unit (bytes, seconds, ...).
// Decimal prefixes are powers of 1000, KiB/MiB/GiB/TiB of 1024. A number without a unit is rejected unless the
// dimension is kNone or kFraction. Returns nothing for any other text; the caller knows the location and reports it.
std::optional<double> parse_quantity(std::string_view text, Dimension dimension);

// A regular expression (ECMA 262, without anchors) of the texts that parse_quantity accepts in this dimension.
std::string quantity_pattern(Dimension dimension);

// "12.3 GB", "1.7 ms", "3.35 TB/s": three significant digits, decimal prefix.
std::string format_quantity(double value, Dimension dimension);
// Significant digits for readers, without an exponent for large numbers, which are rounded to whole ones: "1063".
std::string format_digits(double value, int digits);
// A time for readers: "20 µs", where format_quantity writes "20 us", as configurations do.
std::string format_seconds(double value);

// "+12", "-3", with this many decimals; "0" for what rounds to zero from either side.
std::string format_change(double value, int decimals);

}  // namespace kvcast
