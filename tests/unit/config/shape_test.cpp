// Tables of keys: what they read, and what they list.
#include <catch2/catch.hpp>

#include "config/keys.hpp"
#include "config/run.hpp"

namespace kvcast::tests {

namespace {

using namespace config;
using Type = KeyShape::Type;

enum class Way { kA, kB };
struct Thing {
  int count = 4;
  double size = 0;
  std::optional<double> share;
  Way way = Way::kA;
  bool on = true;
  std::string either;
  int late = 0;
};

constexpr const char* kWays[] = {"a", "b"};
constexpr Key<Thing> kThingKeys[] = {
    {"count", within(1, 9, into<&Thing::count>), "how many"},
    {"size", within(Limits{0, 10, kvcast::Dimension::kBytes}, need<&Thing::size>), ""},
    {"share", within(Limits{0, 1, kvcast::Dimension::kFraction}, into<&Thing::share>), ""},
    {"way", among<kWays>(need<&Thing::way>)},
    {"on", into<&Thing::on>},
    {"either", when([](const Thing& thing) { return !thing.on; }, need<&Thing::either>)},
    {"late", apart(within(1, 100, need<&Thing::late>))},
    {"other", own<Thing>(Type::kMap), "read elsewhere"}};

Thing thing_of(const std::string& text, std::optional<double> most = {}) {
  Section section(parse_yaml(text, "thing.yaml"), "thing");
  Thing thing;
  read_keys(section, kThingKeys, thing);
  if (most) read_apart(section, kThingKeys, "late", thing, most);
  section.finish();
  return thing;
}

std::string error_of_thing(const std::string& text, std::optional<double> most = {}) {
  try {
    thing_of(text, most);
  } catch (const kvcast::UserError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a table lists types, ranges and defaults") {
  const std::vector<KeyShape> keys = shapes_in(kThingKeys);
  REQUIRE(keys.size() == 8);
  CHECK(keys[0].key == "count");
  CHECK(keys[0].about == "how many");
  CHECK(keys[0].type == Type::kInteger);
  CHECK(keys[0].low == 1.0);
  CHECK(keys[0].high == 9.0);
  CHECK(keys[0].fallback == "4");
  CHECK_FALSE(keys[0].required);
  CHECK(keys[1].type == Type::kQuantity);
  CHECK(keys[1].example == "40 GB");
  CHECK(keys[1].required);
  CHECK_FALSE(keys[1].fallback);
  CHECK(keys[2].type == Type::kQuantity);
  CHECK_FALSE(keys[2].required);
  CHECK_FALSE(keys[2].fallback);
  CHECK(keys[3].choices == std::vector<std::string>{"a", "b"});
  CHECK(keys[4].type == Type::kFlag);
  CHECK(keys[4].fallback == "true");
  // Only some maps must have these.
  CHECK_FALSE(keys[5].required);
  CHECK_FALSE(keys[6].required);
  CHECK(keys[7].type == Type::kMap);
}

TEST_CASE("a table reads values, and leaves defaults where a map has none") {
  const Thing thing = thing_of("{size: 3 B, way: b, share: 50 %, late: 7}", 7);
  CHECK(thing.count == 4);
  CHECK(thing.size == 3);
  CHECK(thing.share == 0.5);
  CHECK(thing.way == Way::kB);
  CHECK(thing.on);
  CHECK(thing.late == 7);
  CHECK_FALSE(thing_of("{size: 3 B, way: a}").share);
  CHECK(thing_of("{size: 3 B, way: a, on: false, either: x}").either == "x");
}

TEST_CASE("a table's limits and conditions are those of its reader") {
  CHECK(error_of_thing("{size: 3 B, way: a, count: 10}") ==
        "thing.yaml:1:28: count: 10 is out of range, must be between 1 and 9");
  CHECK(error_of_thing("{way: a}") == "thing.yaml:1:1: thing: the required key \"size\" is missing");
  CHECK_THAT(error_of_thing("{size: 3 B, way: c}"), Catch::Contains("thing.yaml:1:18: way: unknown value \"c\""));
  CHECK_THAT(error_of_thing("{size: 3 B, way: a, either: x}"), Catch::Contains("unknown key \"either\""));
  CHECK_THAT(error_of_thing("{size: 3 B, way: a, on: false}"), Catch::Contains("\"either\" is missing"));
  // A key that is apart is read only by its name, and may be given a narrower limit.
  CHECK_THAT(error_of_thing("{size: 3 B, way: a, late: 7}"), Catch::Contains("unknown key \"late\""));
  CHECK(error_of_thing("{size: 3 B, way: a, late: 7}", 6) ==
        "thing.yaml:1:27: late: 7 is out of range, must be between 1 and 6");
  CHECK_THAT(error_of_thing("{size: 3 B, way: a, other: {}}"), Catch::Contains("unknown key \"other\""));
}

TEST_CASE("every key of a run has a meaning") {
  const Shapes shapes = run_shapes();
  for (const char* title : {"run", "workload", "trace", "match", "score", "deployment", "framework"}) {
    for (const KeyShape& key : shapes.at(title)) {
      INFO(title << "." << key.key);
      CHECK_FALSE(key.about.empty());
    }
  }
}

}  // namespace

}  // namespace kvcast::tests
