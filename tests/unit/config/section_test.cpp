// Reading a map key by key: every getter, and the location and wording of every error.
#include <catch2/catch.hpp>

#include <limits>
#include <string>

#include "config/section.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

Section section_of(const std::string& text) { return {parse_yaml(text, "f.yaml"), "policy"}; }

std::string integer_error(const std::string& value, std::int64_t low = 1, std::int64_t high = 4096) {
  return error_of([&] { section_of("budget: " + value).integer("budget", low, high); });
}
std::string number_error(const std::string& value, double low = 0, double high = 1) {
  return error_of([&] { section_of("tau: " + value).number("tau", low, high); });
}
std::string quantity_error(const std::string& value, Dimension dimension = Dimension::kBytesPerSecond) {
  return error_of([&] { section_of("rate: " + value).quantity("rate", dimension, 1, 1e15); });
}

}  // namespace

TEST_CASE("integers are decimal only", "[section]") {
  CHECK(section_of("budget: 512").integer("budget", 1, 4096) == 512);
  CHECK(section_of("budget: 0").integer("budget", 0, 0) == 0);
  CHECK(section_of("budget: -7").integer("budget", -10, 10) == -7);
  CHECK(section_of("budget: 9223372036854775807").integer("budget", 0, std::numeric_limits<std::int64_t>::max()) ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(integer_error("010") == "f.yaml:1:9: budget: expected an integer without leading zeros, found \"010\"");
  CHECK(integer_error("-01") == "f.yaml:1:9: budget: expected an integer without leading zeros, found \"-01\"");
  for (const char* text : {"+5", "0x10", "0o10", "1_000", "1e3", "12.0", "twelve", ".inf", "-x", "5 tokens", "1,000"}) {
    CHECK(integer_error(text) == fmt::format("f.yaml:1:9: budget: expected an integer, found \"{}\"", text));
  }
  CHECK_THAT(integer_error("64k"), Catch::EndsWith("found \"64k\" (did you mean \"64K\", which is 64 · 1024?)"));
  CHECK_THAT(integer_error("2MiB"), Catch::EndsWith("found \"2MiB\" (did you mean \"2M\", which is 2 · 1024²?)"));
  CHECK_THAT(integer_error("2mm"), Catch::EndsWith("found \"2mm\""));
  CHECK_THAT(integer_error("kB"), Catch::EndsWith("found \"kB\""));
  CHECK(integer_error("\"512\"") == "f.yaml:1:9: budget: expected an integer, found the quoted text \"512\"");
  CHECK(integer_error("[512]") == "f.yaml:1:9: budget: expected an integer, found a list");
  CHECK(integer_error("{a: 1}") == "f.yaml:1:9: budget: expected an integer, found a map");
  CHECK_THAT(integer_error("~"), Catch::Contains("budget: expected an integer, found nothing"));
}

TEST_CASE("integers out of range are rejected with the range", "[section]") {
  CHECK(integer_error("0") == "f.yaml:1:9: budget: 0 is out of range, must be between 1 and 4096");
  CHECK(integer_error("4097") == "f.yaml:1:9: budget: 4097 is out of range, must be between 1 and 4096");
  CHECK(integer_error("99999999999999999999") ==
        "f.yaml:1:9: budget: 99999999999999999999 is out of range, must be between 1 and 4096");
  CHECK(integer_error("-99999999999999999999") ==
        "f.yaml:1:9: budget: -99999999999999999999 is out of range, must be between 1 and 4096");
  CHECK(integer_error("0", 1, std::numeric_limits<std::int64_t>::max()) ==
        "f.yaml:1:9: budget: 0 is out of range, must be at least 1");
  CHECK(integer_error("1", std::numeric_limits<std::int64_t>::min(), 0) ==
        "f.yaml:1:9: budget: 1 is out of range, must be at most 0");
  CHECK(integer_error("9223372036854775808", 0, std::numeric_limits<std::int64_t>::max()) ==
        "f.yaml:1:9: budget: 9223372036854775808 is out of range, must be between 0 and 9223372036854775807");
}

TEST_CASE("numbers are decimal and finite", "[section]") {
  CHECK(section_of("tau: 0.8").number("tau", 0, 1) == 0.8);
  CHECK(section_of("tau: 1e-3").number("tau", 0, 1) == 1e-3);
  CHECK(section_of("tau: 1").number("tau", 0, 1) == 1);
  for (const char* text : {".nan", ".inf", "nan", "inf", "1e999", ".5", "5.", "0.5x", "00.5", "1/2", "50 %"}) {
    CHECK(number_error(text) ==
          fmt::format("f.yaml:1:6: tau: expected a number such as 0.5, 12 or 1e-6, found \"{}\"", text));
  }
  CHECK(number_error("1.5") == "f.yaml:1:6: tau: 1.5 is out of range, must be between 0 and 1");
  CHECK(number_error("-0.1", 0, std::numeric_limits<double>::max()) ==
        "f.yaml:1:6: tau: -0.1 is out of range, must be at least 0");
  CHECK(number_error("\"0.5\"") ==
        "f.yaml:1:6: tau: expected a number such as 0.5, 12 or 1e-6, found the quoted text \"0.5\"");
}

TEST_CASE("quantities must have a unit", "[section]") {
  CHECK(section_of("rate: 3.35 TB/s").quantity("rate", Dimension::kBytesPerSecond, 1, 1e15) == 3.35e12);
  CHECK(section_of("rate: 5 %").quantity("rate", Dimension::kFraction, 0, 1) == 0.05);
  CHECK(section_of("rate: 0.05").quantity("rate", Dimension::kFraction, 0, 1) == 0.05);
  CHECK(section_of("rate: 12").quantity("rate", Dimension::kNone, 0, 100) == 12);
  // JSON can write them only in quotes; a number in quotes is a text.
  CHECK(section_of("{\"rate\": \"3.35 TB/s\"}").quantity("rate", Dimension::kBytesPerSecond, 1, 1e15) == 3.35e12);
  CHECK(section_of("{\"rate\": \"5 %\"}").quantity("rate", Dimension::kFraction, 0, 1) == 0.05);
  CHECK(quantity_error("\"0.05\"", Dimension::kFraction) ==
        "f.yaml:1:7: rate: expected fraction such as 5 %, found the quoted text \"0.05\"");
  CHECK(quantity_error("3") == "f.yaml:1:7: rate: expected bytes/s with a unit such as 3.35 TB/s, found \"3\"");
  CHECK(quantity_error("3 GB") == "f.yaml:1:7: rate: expected bytes/s such as 3.35 TB/s, found \"3 GB\"");
  CHECK(quantity_error("2", Dimension::kSeconds) ==
        "f.yaml:1:7: rate: expected seconds with a unit such as 2 us, found \"2\"");
  CHECK(quantity_error("2", Dimension::kBytes) ==
        "f.yaml:1:7: rate: expected bytes with a unit such as 40 GB, found \"2\"");
  CHECK(quantity_error("2", Dimension::kHertz) ==
        "f.yaml:1:7: rate: expected hertz with a unit such as 1410 MHz, found \"2\"");
  CHECK(quantity_error("x", Dimension::kFraction) == "f.yaml:1:7: rate: expected fraction such as 5 %, found \"x\"");
  CHECK(quantity_error("0 B/s") == "f.yaml:1:7: rate: 0 B/s is out of range, must be between 1 B/s and 1 PB/s");
}

TEST_CASE("flags are true or false", "[section]") {
  CHECK(section_of("on: true").flag("on"));
  CHECK_FALSE(section_of("on: false").flag("on"));
  for (const char* text : {"yes", "no", "on", "off", "True", "TRUE", "1", "0", "y"}) {
    CHECK(error_of([&] { section_of(std::string("x: ") + text).flag("x"); }) ==
          fmt::format("f.yaml:1:4: x: expected true or false, found \"{}\"", text));
  }
  CHECK(error_of([] { section_of("x: \"true\"").flag("x"); }) ==
        "f.yaml:1:4: x: expected true or false, found the quoted text \"true\"");
}

TEST_CASE("texts and choices are read, or rejected with their location", "[section]") {
  CHECK(section_of("a: quest").text("a") == "quest");
  CHECK(section_of("a: \"2\"").text("a") == "2");
  CHECK(section_of("b: 1").text("a", "fallback") == "fallback");
  CHECK(error_of([] { section_of("a: [x]").text("a"); }) == "f.yaml:1:4: a: expected a text, found a list");
  CHECK(error_of([] { section_of("a: \"\"").text("a"); }) ==
        "f.yaml:1:4: a: expected a text that is not empty, found the quoted text \"\"");
  CHECK(section_of("a: avg").choice("a", {"max", "avg"}) == "avg");
  CHECK(section_of("b: 1").choice("a", {"max", "avg"}, "max") == "max");
  CHECK(error_of([] {
          section_of("a: agv").choice("a", {"maximum", "average", "avg"});
        }) == "f.yaml:1:4: a: unknown value \"agv\" (did you mean \"avg\"?); known: maximum, average, avg");
  CHECK(error_of([] {
          section_of("a: gav").choice("a", {"maximum", "average", "avg"});
        }) == "f.yaml:1:4: a: unknown value \"gav\"; known: maximum, average, avg");
  CHECK(error_of([] {
          section_of("a: averag").choice("a", {"maximum", "average"});
        }) == "f.yaml:1:4: a: unknown value \"averag\" (did you mean \"average\"?); known: maximum, average");
  CHECK(error_of([] {
          section_of("a: {b: 1}").choice("a", {"x", "y"});
        }) == "f.yaml:1:4: a: expected one of x, y, found a map");
}

TEST_CASE("lists of texts and numbers are read, or rejected with their location", "[section]") {
  CHECK(section_of("a: [x, \"y\"]").texts("a") == std::vector<std::string>{"x", "y"});
  CHECK(section_of("a: []").texts("a").empty());
  CHECK(section_of("b: 1").texts("a", {}).empty());
  CHECK(section_of("a: [1, 2.5]").numbers("a", 0, 3) == std::vector<double>{1, 2.5});
  CHECK(error_of([] { section_of("a: x").texts("a"); }) == "f.yaml:1:4: a: expected a list of texts, found \"x\"");
  CHECK(error_of([] { section_of("a: 1").numbers("a", 0, 3); }) ==
        "f.yaml:1:4: a: expected a list of numbers, found \"1\"");
  CHECK(error_of([] { section_of("a: [1, 5]").numbers("a", 0, 3); }) ==
        "f.yaml:1:8: a: 5 is out of range, must be between 0 and 3");
}

TEST_CASE("missing keys are reported with the location of the map", "[section]") {
  CHECK(error_of([] { section_of("\na: 1").integer("budget", 0, 1); }) ==
        "f.yaml:2:1: policy: the required key \"budget\" is missing");
  CHECK(error_of([] { section_of("a: 1").section("gpu", "gpu"); }) ==
        "f.yaml:1:1: policy: the required key \"gpu\" is missing");
  CHECK(section_of("a: 1").integer("budget", 0, 1, 1) == 1);
  CHECK(section_of("a: 1").number("budget", 0, 1, 0.5) == 0.5);
  CHECK(section_of("a: 1").quantity("budget", Dimension::kSeconds, 0, 1, 0.5) == 0.5);
  CHECK(section_of("a: 1").flag("budget", true));
  CHECK_FALSE(section_of("a: 1").optional_node("budget").has_value());
  CHECK(section_of("a: 1").optional_node("a")->text() == "1");
}

TEST_CASE("unknown keys are reported at their location, with the nearest and all known keys", "[section]") {
  Section section = section_of("budget: 512\nsinks:\n  deep: 1\n");
  section.integer("budget", 1, 4096);
  section.integer("sink", 0, 10, 4);
  section.has("recent");
  CHECK(error_of([&] { section.finish(); }) ==
        "f.yaml:2:1: policy: unknown key \"sinks\" (did you mean \"sink\"?); known: budget, sink, recent");
  Section far = section_of("completely_else: 1");
  far.has("budget");
  CHECK(error_of([&] { far.finish(); }) == "f.yaml:1:1: policy: unknown key \"completely_else\"; known: budget");
  Section fine = section_of("budget: 1");
  fine.integer("budget", 0, 1);
  CHECK(error_of([&] { fine.finish(); }) == "no error");
}

TEST_CASE("a section must be a map", "[section]") {
  CHECK(error_of([] { section_of("[1]"); }) == "f.yaml:1:1: policy: expected a map of keys to values, found a list");
  CHECK(error_of([] { section_of("x"); }) == "f.yaml:1:1: policy: expected a map of keys to values, found \"x\"");
  CHECK(error_of([] { section_of("a: 5").section("a", "gpu"); }) ==
        "f.yaml:1:4: gpu: expected a map of keys to values, found \"5\"");
}

TEST_CASE("values carry origin, uncertainty and source", "[section]") {
  const auto read = [](const std::string& text) {
    return section_of("bw: " + text).value("bw", Dimension::kBytesPerSecond, 1, 1e15);
  };
  const Value value = read("{value: 3.35 TB/s, origin: datasheet, uncertainty: 5 %, source: \"H100 data sheet\"}");
  CHECK(value.value == 3.35e12);
  CHECK(value.origin == Origin::kDatasheet);
  CHECK(value.uncertainty == 0.05);
  CHECK(value.source == "H100 data sheet");
  CHECK(read("{value: 1 B/s, origin: exact, source: x}").uncertainty == 0);
  CHECK(error_of([&] { read("{value: 1 B/s, source: x}"); }) ==
        "f.yaml:1:5: bw: the required key \"origin\" is missing");
  CHECK(error_of([&] { read("{value: 1 B/s, origin: exact}"); }) ==
        "f.yaml:1:5: bw: the required key \"source\" is missing");
  CHECK(error_of([&] { read("3 TB/s"); }) ==
        "f.yaml:1:5: bw: expected a map {value, origin, uncertainty, source}, found \"3 TB/s\"");
  CHECK(error_of([&] { read("{value: 1 B/s, origin: guess, source: x}"); }) ==
        "f.yaml:1:28: origin: unknown value \"guess\"; known: exact, measured, fitted, literature, datasheet, assumed, "
        "extrapolated");
  CHECK_THAT(error_of([&] { read("{value: 1 B/s, origin: exact, source: x, uncertainty: -1 %}"); }),
             Catch::Contains("uncertainty: -1 % is out of range, must be between 0 % and 1000 %"));
  CHECK(read("{value: 1 B/s, origin: exact, source: x, uncertainty: 0.3}").uncertainty == 0.3);
  CHECK(error_of([&] { read("{value: 1 B/s, origin: exact, source: x, uncertainty: 1.5}"); }) ==
        "f.yaml:1:59: uncertainty: 1.5 has no unit: write 1.5 % or 150 %");
  CHECK_THAT(error_of([&] { read("{value: 1 B/s, origin: exact, source: x, sigma: 1}"); }),
             Catch::Contains("bw: unknown key \"sigma\"; known: value, origin, uncertainty, source"));
}

TEST_CASE("assumed values require an uncertainty", "[section]") {
  const auto read = [](const std::string& text) {
    return section_of("bw: " + text).value("bw", Dimension::kBytesPerSecond, 1, 1e15).uncertainty;
  };
  CHECK(error_of([&] { read("{value: 1 B/s, origin: assumed, source: x}"); }) ==
        "f.yaml:1:5: bw: the required key \"uncertainty\" is missing");
  CHECK(read("{value: 1 B/s, origin: assumed, uncertainty: 0 %, source: x}") == 0);
  CHECK(read("{value: 1 B/s, origin: datasheet, source: x}") == 0);
}

TEST_CASE("all missing keys are reported at once, and a misspelled one at its location", "[section]") {
  CHECK(error_of([] {
          section_of("a: 1").require({"b", "a", "c"});
        }) == "f.yaml:1:1: policy: 2 required keys are missing: b, c");
  CHECK(error_of([] { section_of("a: 1").require({"a"}); }) == "no error");
  CHECK(error_of([] {
          section_of("a: 1\nbudgt: 2").require({"c", "budget"});
        }) == "f.yaml:2:1: policy: the required key \"budget\" is missing; is \"budgt\" meant for it?");
  // A known key is not mistaken for a misspelling of another one.
  CHECK(error_of([] {
          section_of("tensor_flops: 1").require({"vector_flops", "tensor_flops"});
        }) == "f.yaml:1:1: policy: the required key \"vector_flops\" is missing");
  CHECK(error_of([] {
          section_of("a: 1\nsink: 2").only({"a", "budget"});
        }) == "f.yaml:2:1: policy: unknown key \"sink\"; known: a, budget");
}

}  // namespace kvcast::tests
