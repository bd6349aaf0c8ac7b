// The tree: canonical text, settings by dotted path.
#include <catch2/catch.hpp>

#include <set>
#include <string>

#include "config/yaml.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

Node parse(const std::string& text) { return parse_yaml(text, "f.yaml"); }

// The canonical text after `--set argument`.
std::string set(const std::string& text, const std::string& argument) {
  const auto [path, value] = parse_setting(argument);
  return parse(text).with(path, value).canonical();
}

}  // namespace

TEST_CASE("canonical text is independent of order, comments, layout and quotes", "[node]") {
  const std::string expected = R"({"a":"x y","b":[1,-2.5e3,true],"c":{"d":null,"e":40 GB}})";
  CHECK(parse("a: x y\nb: [1, -2.5e3, true]\nc: {d: ~, e: 40 GB}").canonical() == expected);
  CHECK(parse("# hello\nc:\n  e: 40 GB   # much\n  d:\nb:\n- 1\n- -2.5e3\n- true\na: 'x y'\n").canonical() == expected);
}

TEST_CASE("canonical text differs for values with different meanings", "[node]") {
  const std::vector<std::string> different = {
      "a: 1",        "a: \"1\"", "a: 1.0",      "a: [1]", "a: {1: 1}",    "a: true",      "a: \"true\"",    "a: x",
      "a: \"\"",     "a: ~",     "a: \"null\"", "b: 1",   "{a: 1, b: 2}", "a: \"1,b:2\"", "a: '1,\"b\":2'", "a: [1, 2]",
      "a: [[1], 2]", "a: []",    "a: {}",       "a: [~]", "a: 1 b",       "a: \"x\\ny\"", "a: \"x\\\\ny\""};
  std::set<std::string> texts;
  for (const std::string& text : different) texts.insert(parse(text).canonical());
  CHECK(texts.size() == different.size());
  // A plain text that looks like the canonical form of two keys.
  CHECK(parse("a: 1,\"b\":2").canonical() == R"({"a":"1,\"b\":2"})");
}

TEST_CASE("canonical text is YAML that reads back to the same node", "[node]") {
  for (const char* text :
       {"a: 1\nb: {c: [x, \"2\", ~, {d: 40 GiB}], e: \"q\\\"\\\\\\tz\"}\n", "[a, [], {}]", "3.5", "µs"}) {
    const std::string once = parse(text).canonical();
    CHECK(parse(once).canonical() == once);
  }
}

TEST_CASE("a value is set at a dotted path", "[node]") {
  CHECK(set("a: 1", "a=2") == R"({"a":2})");
  CHECK(set("a: 1", "b=x") == R"({"a":1,"b":"x"})");
  CHECK(set("a: {b: {c: 1, d: 2}}", "a.b.c=3") == R"({"a":{"b":{"c":3,"d":2}}})");
  CHECK(set("a: 1", "x.y.z=3") == R"({"a":1,"x":{"y":{"z":3}}})");
  CHECK(set("a: ~", "a.b=1") == R"({"a":{"b":1}})");
  CHECK(set("a: {b: 1}", "a=[1, 2]") == R"({"a":[1,2]})");
  CHECK(set("a: {b: 1, c: 2}", "a={b: 3}") == R"({"a":{"b":3}})");
  CHECK(set("a: 1", "a=40 GB") == R"({"a":40 GB})");
  CHECK(set("a: 1", "a=b=c") == R"({"a":"b=c"})");  // the first = divides
}

TEST_CASE("a policy given by name alone accepts parameters", "[node]") {
  CHECK(set("policy: quest", "policy.budget=512") == R"({"policy":{"budget":512,"name":"quest"}})");
  CHECK(set("policy: {name: quest, budget: 1}", "policy.name=hsa") == R"({"policy":{"budget":1,"name":"hsa"}})");
  CHECK(set("policy: {name: quest, budget: 1}", "policy=full") == R"({"policy":"full"})");
}

TEST_CASE("a machine given by name alone, or a part of it, accepts numbers", "[node]") {
  CHECK(set("hardware: h200", "hardware.gpu.clock=x2") == R"({"hardware":{"gpu":{"clock":"x2"},"like":"h200"}})");
  CHECK(set("hardware: h200", "hardware.like=l40s") == R"({"hardware":{"like":"l40s"}})");
  CHECK(set("hardware: h200", "hardware=l40s") == R"({"hardware":"l40s"})");
  CHECK(set("hardware: h200", "hardware.like.uncertainty=5 %") ==
        R"({"hardware":{"like":{"name":"h200","uncertainty":5 %}}})");
  CHECK(set("hardware: {like: h200, host: xeon}", "hardware.host.cores=64") ==
        R"({"hardware":{"host":{"cores":64,"like":"xeon"},"like":"h200"}})");
  CHECK(set("hardware: {like: h200, gpu: {clock: x2}}", "hardware.gpu.clock.origin=measured") ==
        R"({"hardware":{"gpu":{"clock":{"origin":"measured","value":"x2"}},"like":"h200"}})");
  CHECK(set("hardware: {like: h200, gpu: {clock: x2}}", "hardware.gpu.clock=x3") ==
        R"({"hardware":{"gpu":{"clock":"x3"},"like":"h200"}})");
  CHECK_THAT(error_of([] { set("hardware: {like: h200, gpu: x}", "hardware.gpu.clock=x2"); }),
             Catch::Contains("\"hardware.gpu\" is \"x\", not a map"));
}

TEST_CASE("setting a value does not change the original node", "[node]") {
  const Node before = parse("a: {b: 1}");
  const Node after = before.with("a.b", Node::scalar("2", {}));
  CHECK(before.canonical() == R"({"a":{"b":1}})");
  CHECK(after.canonical() == R"({"a":{"b":2}})");
}

TEST_CASE("values of the file keep their location, set values have that of the argument", "[node]") {
  const auto [path, value] = parse_setting("b.c=7");
  const Node node = parse("a: 1\nb: {c: 2, d: 3}").with(path, value);
  CHECK(node.find("a")->where().line == 1);
  CHECK(node.key_where("b").file == "--set b.c=7");
  CHECK(node.find("b")->key_where("d").file == "f.yaml");
  CHECK(node.find("b")->key_where("d").column == 11);
  CHECK(node.find("b")->find("c")->where().file == "--set b.c=7");
}

TEST_CASE("a value that is not written is located at the map that would contain it", "[node]") {
  const Node node = parse("a: 1\nb: {c: 2, d: {e: 3}}");
  CHECK(where_is(node, "b.d.e").column == 18);
  CHECK(where_is(node, "b.d.f").column == 14);
  CHECK(where_is(node, "a.x").line == 1);
  CHECK(where_is(node, "x.y").line == 1);
}

TEST_CASE("impossible settings are rejected, naming the argument", "[node]") {
  const auto message = [](const std::string& argument) { return error_of([&] { set("a: 1\nl: [1]", argument); }); };
  CHECK(message("a") == "--set a: expected PATH=VALUE, such as workload.batch=4");
  CHECK(message("a=") == "--set a=: no value after \"=\"");
  CHECK(message("a=  ") == "--set a=  : no value after \"=\"");
  CHECK(message("=1") == "--set =1: \"\" is not a path of keys such as workload.batch");
  CHECK(message("a..b=1") == "--set a..b=1: \"a..b\" is not a path of keys such as workload.batch");
  CHECK(message("a b=1") == "--set a b=1: \"a b\" is not a path of keys such as workload.batch");
  CHECK(message("a=[1") == "--set a=[1: not valid YAML: end of sequence flow not found");
  CHECK(message("a={b: 1, b: 2}") ==
        "--set a={b: 1, b: 2} (character 8 of the value): duplicate key \"b\", first given in line 1");
  CHECK(message("a.b=1") == "--set a.b=1: cannot set \"a.b\": \"a\" is \"1\", not a map");
  CHECK(message("l.b=1") == "--set l.b=1: cannot set \"l.b\": \"l\" is a list, not a map");
  CHECK_THAT(message(std::string(100'000, 'a') + "=1"), !Catch::Contains("not a path"));  // long, but a path
  std::string deep = "a";
  for (int i = 0; i < 50'000; ++i) deep += ".a";
  CHECK_THAT(message(deep + "=1"), Catch::Contains("is not a path of keys"));
}

TEST_CASE("a policy name at a deeper level is an ordinary scalar", "[node]") {
  CHECK_THAT(error_of([] { set("x: {policy: quest}", "x.policy.budget=1"); }),
             Catch::Contains("is \"quest\", not a map"));
  CHECK_THAT(error_of([] { set("policy: {name: quest}", "policy.name.x=1"); }),
             Catch::Contains("\"policy.name\" is \"quest\", not a map"));
}

}  // namespace kvcast::tests
