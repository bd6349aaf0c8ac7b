#include "base/strict_json.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "base/quote.hpp"

namespace kvcast::tests {

namespace {

// A shop with prices by name: {"open": [9, 18], "prices": {"tea": 2.5}}.
enum Part : JsonPart { kShop, kOpen, kHour, kPrices, kPrice };
constexpr JsonKey kShopKeys[] = {{"open", kOpen, true}, {"prices", kPrices, false}};
constexpr JsonPartSpec kGrammar[] = {{"the shop", JsonType::kObject, kShopKeys},
                                     {"\"open\"", JsonType::kList, {}, kHour},
                                     {"an hour", JsonType::kWholeNumber},
                                     {"\"prices\"", JsonType::kObject, {}, kPrice},
                                     {"a price", JsonType::kNumber}};

// Records what it receives: "+0@0" for a beginning, "-0@0" for an end, each with its location.
class Log final : public JsonTaker {
 public:
  void begin(JsonPart part, TextOffset at) override { text += fmt::format("+{}@{} ", part, at); }
  void end(JsonPart part, TextOffset at) override { text += fmt::format("-{}@{} ", part, at); }
  bool free_key(JsonPart, const std::string& name, TextOffset at) override {
    text += fmt::format("{}@{} ", name, at);
    return name != "taken";
  }
  void string(JsonPart, const std::string&, TextOffset) override { FAIL("no part of the grammar is a string"); }
  void number(JsonPart part, const JsonNumber& n, TextOffset at) override {
    text += n.whole ? fmt::format("{}={}@{} ", part, *n.whole, at) : fmt::format("{}={}@{} ", part, n.value, at);
  }
  [[noreturn]] void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known) override {
    throw UserError({}, fmt::format("{}: {}", at, what), known);
  }
  std::string text;
};

std::string taken(std::string_view json) {
  Log log;
  try {
    read_strict_json(json, kGrammar, log);
  } catch (const UserError& error) {
    return error.what();
  }
  return log.text;
}

}  // namespace

TEST_CASE("values arrive in order with their locations") {
  CHECK(taken(R"({"open": [9, 18], "prices": {"tea": 2.5}})") ==
        "+0@0 +1@9 2=9@10 2=18@13 -1@9 +3@28 tea@29 4=2.5@36 -3@28 -0@0 ");
  CHECK(taken(R"({"open":[18446744073709551615]})") == "+0@0 +1@8 2=18446744073709551615@9 -1@8 -0@0 ");
  CHECK(taken(R"({"open":[],"prices":{"a\"b":1}})") == "+0@0 +1@8 -1@8 +3@20 a\"b@21 4=1@28 -3@20 -0@0 ");
}

TEST_CASE("JSON that the grammar does not allow is rejected with its location") {
  CHECK(taken("3") == "0: the shop must be an object, found 3");
  CHECK(taken("{}") == "0: the shop lacks the key \"open\"");
  CHECK(taken(R"({"open":[],"open":[]})") == "11: duplicate key \"open\"");
  CHECK(taken(R"({"open":[],"prices":{"taken":1}})") == "21: duplicate key \"taken\"");
  CHECK(taken(R"({"shut":[]})") == "1: unknown key \"shut\" in the shop; known: open, prices");
  CHECK(taken(R"({"open":[9.5]})") == "9: an hour must be a whole number, found 9.5");
  CHECK(taken(R"({"open":[1e3]})") == "9: an hour must be a whole number, found 1000");
  CHECK(taken(R"({"open":[-1]})") == "9: an hour must not be negative, found -1");
  CHECK(taken(R"({"open":[18446744073709551616]})").starts_with("9: an hour must be a whole number, found 1.8"));
  CHECK(taken(R"({"open":[true]})") == "9: an hour must be a whole number, found true");
  CHECK(taken(R"({"open":["\u0007"]})") == "9: an hour must be a whole number, found \"\\x07\"");
  CHECK(taken(R"({"open":[{}]})") == "9: an hour must be a whole number, found an object");
  CHECK(taken(R"({"open":[1e999]})").starts_with("9: number overflow"));
  CHECK(taken(R"({"open":[9,]})").starts_with("11: syntax error"));
  CHECK(taken("").starts_with("0: syntax error"));
  // A message repeats no control character of the text and no byte that is not UTF-8.
  CHECK(taken("{\"a\xff").find("\\xff") != std::string::npos);
  CHECK(taken("{\"a\x1b").find('\x1b') == std::string::npos);
}

TEST_CASE("quoted text has no control characters, and is cut between characters if it is long") {
  CHECK(quote("a\tb\x7f") == "\"a\\x09b\\x7f\"");
  CHECK(quote(std::string(80, 'x')) == "\"" + std::string(80, 'x') + "\"");
  CHECK(quote(std::string(81, 'x')) == "\"" + std::string(80, 'x') + "...\"");
  // The 80th and 81st byte are one character (é): the cut is before it.
  CHECK(quote(std::string(79, 'x') + "\xc3\xa9") == "\"" + std::string(79, 'x') + "...\"");
}

}  // namespace kvcast::tests
