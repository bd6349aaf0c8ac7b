// The keys that a reader requests, recorded.
#include "config/shape.hpp"

#include <catch2/catch.hpp>

#include "config/run.hpp"
#include "config/section.hpp"

namespace kvcast::tests {

namespace {

using namespace config;
using Type = KeyShape::Type;

TEST_CASE("a reader's recorded keys have its types, ranges and defaults") {
  const Node none = Node::map({}, {});
  const Shapes shapes = shapes_of([&] {
    Section section(none, "thing");
    section.integer("count", 1, 9, 4);
    section.quantity("size", kvcast::Dimension::kBytes, 0, 10);
    section.choice("way", {"a", "b"});
    section.flag("on", true);
    if (section.has("either")) {
      section.text("either");
      throw kvcast::UserError("alternatives");
    }
    section.finish();
  });
  REQUIRE(shapes.size() == 1);
  const std::vector<KeyShape>& keys = shapes.at("thing");
  REQUIRE(keys.size() == 5);
  CHECK(keys[0].key == "count");
  CHECK(keys[0].type == Type::kInteger);
  CHECK(keys[0].low == 1.0);
  CHECK(keys[0].high == 9.0);
  CHECK(keys[0].fallback == "4");
  CHECK_FALSE(keys[0].required);
  CHECK(keys[1].type == Type::kQuantity);
  CHECK(keys[1].example == "40 GB");
  CHECK(keys[1].required);
  CHECK(keys[2].choices == std::vector<std::string>{"a", "b"});
  CHECK(keys[3].fallback == "true");
  // Requested only if it is present: its type is known, and it is not required.
  CHECK(keys[4].type == Type::kText);
  CHECK_FALSE(keys[4].required);
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

TEST_CASE("a meaning is kept however often the key is requested") {
  const Shapes shapes = shapes_of([&] {
    Section section(Node::map({}, {}), "all");
    section.only({{"first", "said first"}, {"second", "replaced"}, "third"});
    section.text("first", "");
    section.integer({"second", "said last"}, 0, 9, 1);
    section.flag({"third", "said late"}, false);
    section.has("third");
  });
  const auto& keys = shapes.at("all");
  REQUIRE(keys.size() == 3);
  CHECK(keys[0].about == "said first");
  CHECK(keys[1].about == "said last");
  CHECK(keys[2].about == "said late");
}

TEST_CASE("readers work as before after their keys were recorded") {
  const Shapes shapes = run_shapes();
  for (const char* title : {"run", "workload", "trace", "match", "score", "framework"}) CHECK(shapes.contains(title));
  CHECK_FALSE(shape::is_recording());
  CHECK_THROWS_AS(read_run(Node::map({}, {})), kvcast::UserError);
}

}  // namespace

}  // namespace kvcast::tests
