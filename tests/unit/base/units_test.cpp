// Quantities: texts that are read, texts that are rejected, and texts that are written.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "base/units.hpp"

namespace kvcast::tests {

using enum Dimension;

TEST_CASE("digits for readers have no exponent") {
  CHECK(format_digits(1063.2, 3) == "1063");
  CHECK(format_digits(27170, 4) == "27170");
  CHECK(format_digits(9999.7, 4) == "10000");
  CHECK(format_digits(0.04567, 3) == "0.0457");
  CHECK(format_digits(2.5, 3) == "2.5");
  CHECK(format_digits(1e20, 3) == "1e+20");
}

TEST_CASE("quantities are read in the base unit of their dimension", "[units]") {
  CHECK(parse_quantity("3.35 TB/s", kBytesPerSecond) == 3.35e12);
  CHECK(parse_quantity("40 GB", kBytes) == 40e9);
  CHECK(parse_quantity("40 GiB", kBytes) == 40.0 * 1073741824);  // 2^30 = 1073741824
  CHECK(parse_quantity("1 KiB", kBytes) == 1024);
  CHECK(parse_quantity("2 MiB/s", kBytesPerSecond) == 2097152);  // 2 * 2^20
  CHECK(parse_quantity("1 TiB", kBytes) == 1099511627776.0);     // 2^40
  CHECK(parse_quantity("256 kB", kBytes) == 256e3);
  CHECK(parse_quantity("256 KB", kBytes) == 256e3);
  CHECK(parse_quantity("7 B", kBytes) == 7);
  CHECK(parse_quantity("312 TFLOP/s", kFlopPerSecond) == 312e12);
  CHECK(parse_quantity("2 GFLOP", kFlops) == 2e9);
  CHECK(parse_quantity("1410 MHz", kHertz) == 1410e6);
  CHECK(parse_quantity("1.41 GHz", kHertz) == 1.41e9);
  CHECK(parse_quantity("2 us", kSeconds) == 2e-6);
  CHECK(parse_quantity("2 \u00b5s", kSeconds) == 2e-6);  // micro sign
  CHECK(parse_quantity("2 \u03bcs", kSeconds) == 2e-6);  // Greek mu
  CHECK(parse_quantity("20 us", kSeconds) == 2e-5);      // 20 * 1e-6 is not the double nearest to 2e-5
  CHECK(parse_quantity("300 ns", kSeconds) == 3e-7);
  CHECK(parse_quantity("7 ps", kSeconds) == 7e-12);
  CHECK(parse_quantity("1.5 ms", kSeconds) == 1.5e-3);
  CHECK(parse_quantity("3 s", kSeconds) == 3);
  CHECK(parse_quantity("5 %", kFraction) == 0.05);
  CHECK(parse_quantity("0.05", kFraction) == 0.05);
  CHECK(parse_quantity("-0.5", kNone) == -0.5);
  CHECK(parse_quantity("0", kNone) == 0);
  CHECK(parse_quantity("1e-6", kNone) == 1e-6);
  CHECK(parse_quantity("1.5E+3", kNone) == 1500);
}

TEST_CASE("the blank before a unit is optional and may be repeated", "[units]") {
  CHECK(parse_quantity("40GB", kBytes) == 40e9);
  CHECK(parse_quantity("40   GB", kBytes) == 40e9);
  CHECK(parse_quantity("5%", kFraction) == 0.05);
}

TEST_CASE("a quantity is exactly a number and a unit of the dimension", "[units]") {
  const std::vector<std::pair<const char*, Dimension>> refused = {
      {"", kBytes},         {" ", kBytes},        {"GB", kBytes},
      {"40", kBytes},       {"40 ", kBytes},      {"40 gb", kBytes},
      {"40 G", kBytes},     {"40 GB/s", kBytes},  {"40 GB", kSeconds},
      {"40 GB ", kBytes},   {" 40 GB", kBytes},   {"40 GB x", kBytes},
      {"1,5 GB", kBytes},   {"1_000 GB", kBytes}, {"+1 GB", kBytes},
      {"0x10 B", kBytes},   {"010 B", kBytes},    {".5 GB", kBytes},
      {"5. GB", kBytes},    {"1e GB", kBytes},    {"1e+ GB", kBytes},
      {"--1 GB", kBytes},   {"inf GB", kBytes},   {"nan", kNone},
      {".nan", kNone},      {".inf", kNone},      {"1e400", kNone},
      {"1e308 TB", kBytes}, {"-", kNone},         {"5 %", kNone},
      {"1e-400", kNone},    {"2 Us", kSeconds},   {"2 US", kSeconds},
      {"1 FLOPS", kFlops},  {"2 mhz", kHertz},    {"40\tGB", kBytes},
      {"40\nGB", kBytes},   {"1 m", kSeconds},    {"2 TFLOPS", kFlopPerSecond}};
  for (const auto& [text, dimension] : refused) {
    CAPTURE(text, dimension_name(dimension));
    CHECK_FALSE(parse_quantity(text, dimension).has_value());
  }
}

TEST_CASE("quantities are written with three significant digits and a decimal prefix", "[units]") {
  CHECK(format_quantity(12.3e9, kBytes) == "12.3 GB");
  CHECK(format_quantity(1.7e-3, kSeconds) == "1.7 ms");
  CHECK(format_seconds(20e-6) == "20 \u00b5s");
  CHECK(format_seconds(1.7e-3) == "1.7 ms");
  CHECK(format_quantity(3.35e12, kBytesPerSecond) == "3.35 TB/s");
  CHECK(format_quantity(0, kBytes) == "0 B");
  CHECK(format_quantity(0, kSeconds) == "0 s");
  CHECK(format_quantity(999.4, kBytes) == "999 B");
  CHECK(format_quantity(999.6, kBytes) == "1 kB");  // 1000 B after rounding, hence the next prefix
  CHECK(format_quantity(1234, kBytes) == "1.23 kB");
  CHECK(format_quantity(-2.5e-6, kSeconds) == "-2.5 us");
  CHECK(format_quantity(1e-15, kSeconds) == "0.001 ps");
  CHECK(format_quantity(4e21, kBytes) == "4000000 PB");
  CHECK(format_quantity(0.05, kFraction) == "5 %");
  CHECK(format_quantity(1.5, kFraction) == "150 %");
  CHECK(format_quantity(123456, kNone) == "123000");
  CHECK(format_quantity(1410e6, kHertz) == "1.41 GHz");
  CHECK(format_quantity(312e12, kFlopPerSecond) == "312 TFLOP/s");
  CHECK(format_quantity(20, kSeconds) == "20 s");
  CHECK(format_quantity(std::numeric_limits<double>::infinity(), kSeconds) == "inf s");
}

TEST_CASE("written quantities read back to three digits", "[units][property]") {
  const Stream stream(7);
  for (const Dimension dimension : {kBytes, kBytesPerSecond, kFlops, kFlopPerSecond, kSeconds, kHertz, kFraction}) {
    for (std::uint64_t i = 0; i < 2000; ++i) {
      // Across the prefixes: 1e-11 to 1e3 seconds, 1e1 to 1e15 in the other units.
      const double value = std::pow(10.0, (dimension == kSeconds ? -11 : 1) + 14 * stream.uniform(i));
      const std::string text = format_quantity(value, dimension);
      CAPTURE(value, text);
      const std::optional<double> back = parse_quantity(text, dimension);
      REQUIRE(back.has_value());
      // Half a unit of the third digit is at most 0.5 % of the value.
      CHECK(std::abs(*back - value) <= 0.005001 * value);
    }
  }
}

TEST_CASE("picoseconds round to the nearest", "[units]") {
  CHECK(to_picos(1.0) == 1'000'000'000'000);
  CHECK(to_picos(1.4e-12) == 1);
  CHECK(to_picos(1.6e-12) == 2);
  CHECK(to_picos(-1.6e-12) == -2);
  CHECK(to_seconds(2'500'000) == 2.5e-6);
}

TEST_CASE("a change that rounds to zero has no sign", "[units]") {
  CHECK(format_change(-0.4, 0) == "0");
  CHECK(format_change(0.4, 0) == "0");
  CHECK(format_change(-0.004, 2) == "0.00");
  CHECK(format_change(-0.6, 0) == "-1");
  CHECK(format_change(12.34, 1) == "+12.3");
}

}  // namespace kvcast::tests
