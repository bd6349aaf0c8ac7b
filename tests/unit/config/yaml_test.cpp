// Strict YAML: the documents that are read, and the location and wording of each error.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "config/yaml.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

std::string error_of_yaml(const std::string& text) {
  return error_of([&] { parse_yaml(text, "f.yaml"); });
}

std::string canonical(const std::string& text) { return parse_yaml(text, "f.yaml").canonical(); }

// {key0: &n0 [x, ... ten times], key1: &n1 [*n0, ... ten times], ...}
std::string laughing(int levels) {
  std::string text = "k0: &n0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < levels; ++i) {
    text += fmt::format("k{}: &n{} [", i, i);
    for (int j = 0; j < 10; ++j) text += fmt::format("{}*n{}", j == 0 ? "" : ", ", i - 1);
    text += "]\n";
  }
  return text;
}

}  // namespace

TEST_CASE("maps, lists and scalars are read with their locations", "[yaml]") {
  const Node root = parse_yaml("a: 1\nb:\n  - x\n  - {c: \"2\", d: ~}\n", "f.yaml");
  REQUIRE(root.kind() == Node::Kind::kMap);
  REQUIRE(root.entries().size() == 2);
  CHECK(root.entries()[0].first == "a");
  CHECK(root.find("a")->text() == "1");
  CHECK_FALSE(root.find("a")->quoted());
  CHECK(root.find("missing") == nullptr);

  const Node& list = *root.find("b");
  REQUIRE(list.kind() == Node::Kind::kList);
  CHECK(list.where().line == 3);
  CHECK(list.where().column == 3);
  CHECK(root.key_where("b").line == 2);
  CHECK(root.key_where("b").column == 1);

  const Node& map = list.items()[1];
  CHECK(map.find("c")->quoted());
  CHECK(map.find("c")->where().line == 4);
  CHECK(map.find("c")->where().column == 9);
  CHECK(map.find("c")->where().file == "f.yaml");
  CHECK(map.find("d")->kind() == Node::Kind::kNull);
}

TEST_CASE("a key without a value is located at the key", "[yaml]") {
  const Node root = parse_yaml("a: 1\nb:\nc: ~\n", "f.yaml");
  CHECK(root.find("b")->where().line == 2);
  CHECK(root.find("b")->where().column == 1);
  CHECK(root.find("c")->where().column == 4);
}

TEST_CASE("a node counts its values and levels", "[yaml]") {
  // The root, 1, the list, x, the map, 2, 3: seven values. Root, list, map: three levels.
  const Node root = parse_yaml("a: 1\nb: [x, {c: 2, d: 3}]\n", "f.yaml");
  CHECK(root.size() == 7);
  CHECK(root.depth() == 3);
  CHECK(root.find("a")->depth() == 0);
}

TEST_CASE("a count of tokens may be written in K and M, and names do not change", "[yaml]") {
  CHECK(canonical("[128K, 1M, 3K]") == canonical("[131072, 1048576, 3072]"));
  CHECK(parse_setting("a.b=32K").second.text() == "32768");
  CHECK(parse_yaml("{name: 128K, description: 1M, budget: 1K}", "f.yaml").find("name")->text() == "128K");
  for (const char* text : {"0K", "\"1K\"", "K", "1KB", "1 K", "-1K", "1.5K", "01K", "1k", "1234567890K"})
    CHECK(parse_yaml(text, "f.yaml").text() == (text[0] == '"' ? "1K" : std::string(text)));
}

TEST_CASE("aliases are replaced by the anchored value", "[yaml]") {
  CHECK(canonical("a: &x {b: 1}\nc: *x\nd: [*x, *x]") == R"({"a":{"b":1},"c":{"b":1},"d":[{"b":1},{"b":1}]})");
  CHECK(canonical("a: &x 1\nb: &x 2\nc: *x") == R"({"a":1,"b":2,"c":2})");  // the latest anchor with this name
  CHECK(canonical("&k key: 1\nother: *k") == R"({"key":1,"other":"key"})");
}

TEST_CASE("a document may have a start marker, a directive, comments, CRLF and a byte order mark", "[yaml]") {
  CHECK(canonical("%YAML 1.2\n---\na: 1 # one\n...\n") == R"({"a":1})");
  CHECK(canonical("# first\r\na: 1\r\nb: x\r\n") == R"({"a":1,"b":"x"})");
  CHECK(canonical("\xEF\xBB\xBF"
                  "a: 1") == R"({"a":1})");
  CHECK(canonical("a: µs ≥ 日本") == R"({"a":"µs ≥ 日本"})");
}

TEST_CASE("valid YAML that kvcast does not allow is rejected with its location", "[yaml]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "f.yaml:1:1: the document is empty"},
      {"  \n\n", "f.yaml:1:1: the document is empty"},
      {"# only a comment\n", "f.yaml:1:1: the document is empty"},
      {"---\n", "f.yaml:2:1: the document is empty"},
      {"~", "f.yaml:1:1: the document is empty"},
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key \"a\", first given in line 1"},
      {"x: {b: 2,\n  b: 3}", "f.yaml:2:3: duplicate key \"b\", first given in line 1"},
      {"a: 1\n\"a\": 2", "f.yaml:2:1: duplicate key \"a\", first given in line 1"},
      {"a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document starts here; a file holds exactly one"},
      {"a: 1\n---\n", "f.yaml:2:1: a second document starts here; a file holds exactly one"},
      {"a: 1\n...\n---\nb: 1\n", "f.yaml:3:1: a second document starts here; a file holds exactly one"},
      {"[1, 2] 3", "f.yaml:1:8: text after the end of the document"},
      {"a: &x [1, *x]\n", "f.yaml:1:11: an alias to a node that contains it"},
      {"&x a: {b: 1}\nc: &y {d: {e: *y}}", "f.yaml:2:15: an alias to a node that contains it"},
      {"a: *nowhere", "f.yaml:1:4: not valid YAML: the referenced anchor is not defined"},
      {"a: !!str 3", "f.yaml:1:4: a tag (\"tag:yaml.org,2002:str\"); kvcast's YAML has none"},
      {"a: !!python/object x", "f.yaml:1:4: a tag (\"tag:yaml.org,2002:python/object\"); kvcast's YAML has none"},
      {"a: !mine {b: 1}", "f.yaml:1:4: a tag (\"!mine\"); kvcast's YAML has none"},
      {"a: !mine [b]", "f.yaml:1:4: a tag (\"!mine\"); kvcast's YAML has none"},
      {"a: &x {b: 1}\nc:\n  <<: *x", "f.yaml:3:3: merge keys (<<) are not supported: write the keys out"},
      {"? [a, b]\n: 1", "f.yaml:1:3: a key must be a text, found a list"},
      {"? {a: b}\n: 1", "f.yaml:1:3: a key must be a text, found a map"},
      {"~: 1", "f.yaml:1:1: a key must be a text, found nothing"},
      {"\"\": 1", "f.yaml:1:1: a key must be a text, found the quoted text \"\""},
      {"a: 1\n" + std::string(129, 'k') + ": 2",
       "f.yaml:2:1: a key longer than 128 bytes: \"" + std::string(60, 'k') + "...\""},
      {"a: \"x\\0y\"", "f.yaml:1:4: a NUL character in a text"},
      {"a: \"x\\Ny\"", "f.yaml:1:4: an escape that is no character (\\N or \\_)"},
      {"a: 1\nb: [1, 2\n", "f.yaml:2:4: not valid YAML: end of sequence flow not found"},  // at the opening bracket
      {"a: {b: 1", "f.yaml:1:4: not valid YAML: end of map flow not found"},
      {"a: 1\n  b: 2", "f.yaml:2:4: not valid YAML: illegal map value"},
      {"a: \"open", "f.yaml:1:4: not valid YAML: a quote that is never closed"},  // at the opening quote
      {"a: 1\nb: \"open\nc: 2\n", "f.yaml:2:4: not valid YAML: a quote that is never closed"},
      {"ä: 'it''s\nc: 2\n", "f.yaml:1:5: not valid YAML: a quote that is never closed"},
      {"a: \"open \\\"\n", "f.yaml:1:4: not valid YAML: a quote that is never closed"},
      {"a: }", "f.yaml:1:4: not valid YAML: illegal flow end"},
      {"\tb: 1",
       "f.yaml:1:3: not valid YAML: illegal map value; the line is indented with a tab, but YAML allows only spaces"},
      {"a: 1\nb 2\nc: 3\n", "f.yaml:3:2: not valid YAML: illegal map value; line 2 has no colon"},
      {"a:\n  b 2\n  # comment: c\n\n  c: 3\n",
       "f.yaml:5:3: not valid YAML: end of map not found; line 2 has no colon"},
      {"a: 1\n- b\nc: 3\n", "f.yaml:2:1: not valid YAML: end of map not found"},
      {"%YAML 2.0\n---\na: 1", "f.yaml:1:1: not valid YAML: YAML major version too large"},
  };
  for (const auto& [text, message] : cases) {
    CAPTURE(text);
    CHECK(error_of_yaml(text) == message);
  }
}

TEST_CASE("bytes that are not text are rejected with their location", "[yaml]") {
  CHECK(error_of_yaml(std::string("a: 1\nb: x\0y", 11)) == "f.yaml:2:5: a control character (byte 0x00)");
  CHECK(error_of_yaml("a: \x07") == "f.yaml:1:4: a control character (byte 0x07)");
  CHECK(error_of_yaml("a: \x7F") == "f.yaml:1:4: a control character (byte 0x7F)");
  const std::vector<std::string> broken = {
      "\xFF\xFE"
      "a",                      // UTF-16
      "\x80",                   // a continuation without a lead
      "\xC3",                   // a lead without a continuation
      "\xC0\xAF",               // an overlong '/'
      "\xE0\x80\x80",           // an overlong NUL
      "\xED\xA0\x80",           // a surrogate
      "\xF4\x90\x80\x80",       // above U+10FFFF
      "\xF0\x8F\xBF\xBF",       // overlong, four bytes
      "\xF8\x88\x80\x80\x80"};  // five bytes
  for (const std::string& bytes : broken)
    CHECK(error_of_yaml("a: 1\n" + bytes) == "f.yaml:2:1: bytes that are not valid UTF-8");
}

TEST_CASE("nesting is limited to 64 levels", "[yaml]") {
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') + "1" +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  CHECK(parse_yaml(nested(64), "f.yaml").depth() == 64);
  CHECK(error_of_yaml(nested(65)) == "f.yaml:1:65: lists and maps nested deeper than 64 levels");
  // Depth accumulated by aliases: x is 40 deep, and its position is 30 deep.
  CHECK_THAT(error_of_yaml("x: &x " + nested(40) + "\ny: " + std::string(30, '[') + "*x" + std::string(30, ']')),
             Catch::Contains("f.yaml:2:34: lists and maps nested deeper than 64 levels"));
  // Nested far deeper than a stack allows, for each kind of nesting.
  std::string block, dashes;
  for (int i = 0; i < 3000; ++i) block += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  for (int i = 0; i < 100'000; ++i) dashes += "- ";
  for (const std::string& deep : {std::string(100'000, '['), std::string(100'000, '{'), block, dashes}) {
    CHECK_THAT(error_of_yaml(deep), Catch::StartsWith("f.yaml:"));
  }
}

TEST_CASE("aliases that expand exponentially are rejected", "[yaml]") {
  // Level i contains 10^(i+1) texts; four levels are about 11 000 values, seven would be eleven million.
  CHECK(parse_yaml(laughing(4), "f.yaml").size() > 11'000);
  CHECK_THAT(error_of_yaml(laughing(7)), Catch::Contains("more than 100000 values, aliases written out"));
  CHECK_THAT(error_of_yaml(laughing(30)), Catch::Contains("more than 100000 values, aliases written out"));
}

TEST_CASE("text of more than a mebibyte is rejected", "[yaml]") {
  CHECK(error_of_yaml(std::string((1u << 20) + 1, '#')) == "f.yaml: larger than 1 MiB");
  CHECK(error_of_yaml("a: 1\n" + std::string((1u << 20) - 5, '#')) == "no error");
}

TEST_CASE("the reason is reported if a file cannot be read", "[yaml]") {
  const TemporaryDirectory directory;
  const std::string& path = directory.path();
  CHECK(error_of([&] { load_yaml(path + "/none.yaml"); }) == path + "/none.yaml: no such file");
  CHECK(error_of([&] { load_yaml(path); }) == path + ": not a file");
  CHECK(error_of([&] { load_yaml("/dev/zero"); }) == "/dev/zero: not a file");
  std::ofstream(path + "/large.yaml") << std::string((1u << 20) + 1, '#');
  CHECK(error_of([&] { load_yaml(path + "/large.yaml"); }) == path + "/large.yaml: larger than 1 MiB");
  std::ofstream(path + "/empty.yaml") << "";
  CHECK(error_of([&] { load_yaml(path + "/empty.yaml"); }) == path + "/empty.yaml:1:1: the document is empty");
  std::ofstream(path + "/good.yaml") << "a: 1\n";
  CHECK(load_yaml(path + "/good.yaml").find("a")->text() == "1");
}

TEST_CASE("a tab in the indentation is reported", "[yaml]") {
  CHECK_THAT(error_of_yaml("a:\n\tb: 1\n\tc: 2\n"),
             Catch::Contains("f.yaml:2:") && Catch::Contains("indented with a tab"));
  CHECK_THAT(error_of_yaml("a: [1\tb\n"), !Catch::Contains("tab"));
}

}  // namespace kvcast::tests
