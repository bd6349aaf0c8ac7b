#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "base/origin.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

TEST_CASE("errors name the location as far as it is known", "[error]") {
  CHECK(format_location({"a.yaml", 3, 7}) == "a.yaml:3:7: ");
  CHECK(format_location({"a.yaml", 3, 0}) == "a.yaml:3: ");
  CHECK(format_location({"a.yaml", 0, 0}) == "a.yaml: ");
  CHECK(format_location({"", 3, 7}) == "line 3:7: ");
  CHECK(format_location({}) == "");
}

TEST_CASE("errors list the valid names", "[error]") {
  CHECK(std::string(UserError({"f", 1, 2}, "unknown key \"x\"", {"a", "b"}).what()) ==
        "f:1:2: unknown key \"x\"; known: a, b");
  CHECK(std::string(UserError({"f", 1, 2}, "broken").what()) == "f:1:2: broken");
}

TEST_CASE("a location is added to an error that has none, and only to such a one", "[error]") {
  const SourceLocation where{"f", 1, 2};
  CHECK(error_of([&] { at_location(where, [] { throw UserError("too short"); }); }) == "f:1:2: too short");
  CHECK(error_of([&] { at_location(where, [] { throw UserError({"g", 3, 0}, "broken"); }); }) == "g:3: broken");
  CHECK(at_location(where, [] { return 7; }) == 7);
}

TEST_CASE("origins have names, and the worse of two prevails", "[origin]") {
  for (int i = 0; i < 7; ++i) {
    const auto origin = static_cast<Origin>(i);
    CHECK(origin_from_name(origin_name(origin)) == origin);
  }
  CHECK(worse(Origin::kMeasured, Origin::kDatasheet) == Origin::kDatasheet);
  CHECK(worse(Origin::kExtrapolated, Origin::kExact) == Origin::kExtrapolated);
  CHECK(error_of([] { origin_from_name("guessed"); }) ==
        "unknown origin \"guessed\"; known: exact, measured, fitted, literature, datasheet, assumed, extrapolated");
}

}  // namespace kvcast::tests
