// Graphs as JSON: valid input, its results, and the wording of errors for invalid input.
#include "engine/simulate.hpp"

#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"

namespace kvcast::tests {

using kvcast::engine::simulate_json;
using nlohmann::json;

namespace {

const std::string kExample = R"({"resources":[{"name":"hbm","rate":3.35e12,"sharing":"fair"},
  {"name":"h2d","rate":2.5e10,"sharing":"fifo"}],
 "lanes":["compute","copy"],
 "ops":[{"id":0,"lane":"compute","latency_s":2e-6,"demand":{"hbm":3.35e9},"after":[]},
        {"id":1,"lane":"copy","latency_s":1e-6,"demand":{"h2d":2.5e7},"after":[]},
        {"id":2,"lane":"compute","latency_s":0,"demand":{},"after":[0,1]}]})";

// The graph with the ops given, on lanes "a", "b" and "c", with resources "fair", "fifo" and "dead" (rate 0).
std::string graph_text(const std::string& ops) {
  return R"({"resources":[{"name":"fair","rate":1e6,"sharing":"fair"},{"name":"fifo","rate":1e6,"sharing":"fifo"},
{"name":"dead","rate":0,"sharing":"fair"}],"lanes":["a","b","c"],
"ops":[)" +
         ops + "]}";
}

// The message of the error for the text; empty if there is none.
std::string refusal(const std::string& text) {
  try {
    simulate_json(text, "g.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the example from the documentation has the times worked out by hand") {
  // 0: 2 us + 1 ms. 1: 1 us + 1 ms. 2 has no work: starts and ends when both are done.
  const json result = json::parse(simulate_json(kExample, "g.json"));
  CHECK(result.size() == 2);
  CHECK(result["makespan_s"] == 1.002e-3);
  REQUIRE(result["ops"].size() == 3);
  CHECK(result["ops"][0] == json{{"id", 0}, {"start_s", 0.0}, {"finish_s", 1.002e-3}});
  CHECK(result["ops"][1] == json{{"id", 1}, {"start_s", 0.0}, {"finish_s", 1.001e-3}});
  CHECK(result["ops"][2] == json{{"id", 2}, {"start_s", 1.002e-3}, {"finish_s", 1.002e-3}});
}

TEST_CASE("ids may have any order and gaps; results are sorted by id") {
  // 900 waits for 5, which comes later in the file: 5 from 0 to 2, 900 from 2 to 3.
  const json result = json::parse(simulate_json(
      graph_text(R"({"id":900,"lane":"a","latency_s":1,"after":[5]},{"id":5,"lane":"b","latency_s":2})"), "g.json"));
  CHECK(result["ops"][0] == json{{"id", 5}, {"start_s", 0.0}, {"finish_s", 2.0}});
  CHECK(result["ops"][1] == json{{"id", 900}, {"start_s", 2.0}, {"finish_s", 3.0}});
}

TEST_CASE("ties for a fifo go to the lower id, whatever the order in the file") {
  // Both ready at 0: op 3 first, although op 8 comes first in the file. 1e6 units a second: 1 s each.
  const json result = json::parse(simulate_json(
      graph_text(R"({"id":8,"lane":"a","demand":{"fifo":1e6}},{"id":3,"lane":"b","demand":{"fifo":1e6}})"), "g.json"));
  CHECK(result["ops"][0]["finish_s"] == 1.0);
  CHECK(result["ops"][1]["finish_s"] == 2.0);
}

TEST_CASE("ops that wait for ops with higher ids keep their tie order") {
  // 1 waits for 10 (no work); 1 and 2 are ready at 0: 1 first, though in any order of execution 10 comes before 1.
  const json result =
      json::parse(simulate_json(R"({"resources":[{"name":"f","rate":1,"sharing":"fifo"}],"lanes":["a","b","c"],"ops":[
{"id":2,"lane":"a","demand":{"f":1}},{"id":1,"lane":"b","demand":{"f":1},"after":[10]},{"id":10,"lane":"c"}]})",
                                "g.json"));
  CHECK(result["ops"][0]["finish_s"] == 1.0);
  CHECK(result["ops"][1]["finish_s"] == 2.0);
}

TEST_CASE("keys of the graph may have any order, and strings may contain escapes") {
  const json result = json::parse(simulate_json(
      R"({"ops":[{"lane":"\u0061\"","demand":{"\\":2},"id":0}],"lanes":["a\""],"resources":[{"sharing":"fair","rate":2,"name":"\\"}]})",
      "g.json"));
  CHECK(result["makespan_s"] == 1.0);
}

TEST_CASE("a graph without ops takes no time") {
  CHECK(json::parse(simulate_json(graph_text(""), "g.json")) == json{{"makespan_s", 0.0}, {"ops", json::array()}});
}

TEST_CASE("invalid graphs are rejected with location and reason") {
  struct Case {
    std::string text, message;
  };
  const std::vector<Case> cases{
      // Syntax.
      {"", "g.json:1:1: syntax error"},
      {"{\n  \"lanes\": [}", "g.json:2:13: syntax error"},
      {"{\"resources\":[],\n\"lanes\":[],\"ops\":[]} trailing", "g.json:2:24: syntax error"},
      {graph_text(R"({"id":0,"lane":"a","latency_s":1e999})"), "g.json:3:39: number overflow"},
      {graph_text(R"({"id":0,"lane":"a","latency_s":NaN})"), "g.json:3:39: syntax error"},
      {std::string("{\"lanes\":[\"\xff\"]}"), "invalid string: ill-formed UTF-8"},
      {std::string(100'000, '['), "g.json:1:1: the graph must be an object, found a list"},
      // Keys.
      {R"({"resources":[],"lanes":[],"ops":[],"opps":[]})",
       "g.json:1:37: unknown key \"opps\" in the graph; known: resources, lanes, ops"},
      {R"({"resources":[],"lanes":[],"ops":[],"lanes":[]})", "g.json:1:37: duplicate key \"lanes\""},
      {R"({"resources":[],"lanes":[]})", "g.json:1:1: the graph lacks the key \"ops\""},
      {graph_text(R"({"id":0,"lane":"a","latency":1})"),
       "g.json:3:27: unknown key \"latency\" in an op; known: id, lane, latency_s, demand, after"},
      {graph_text(R"({"id":0})"), "g.json:3:8: an op lacks the key \"lane\""},
      {graph_text(R"({"lane":"a"})"), "g.json:3:8: an op lacks the key \"id\""},
      {graph_text(R"({"id":0,"lane":"a","demand":{"fair":1,"fair":2}})"), "g.json:3:46: duplicate key \"fair\""},
      {R"({"resources":[{"name":"x","rate":1}],"lanes":[],"ops":[]})", "a resource lacks the key \"sharing\""},
      // Types.
      {"[]", "the graph must be an object, found a list"},
      {R"({"resources":{}})", "g.json:1:14: \"resources\" must be a list, found an object"},
      {R"({"lanes":[1]})", "g.json:1:11: the name of a lane must be a string, found 1"},
      {graph_text(R"({"id":0,"lane":"a","latency_s":"2 us"})"),
       "g.json:3:39: \"latency_s\" must be a number, found \"2 us\""},
      {graph_text(R"({"id":0,"lane":"a","latency_s":null})"), "\"latency_s\" must be a number, found null"},
      {graph_text(R"({"id":true,"lane":"a"})"), "g.json:3:14: the id of an op must be a whole number, found true"},
      {graph_text(R"({"id":0.5,"lane":"a"})"), "the id of an op must be a whole number, found 0.5"},
      {graph_text(R"({"id":18446744073709551615,"lane":"a"})"), "the id of an op must be a whole number"},
      {graph_text(R"({"id":0,"lane":"a","after":0})"), "\"after\" must be a list, found 0"},
      {graph_text(R"({"id":0,"lane":"a","after":[[0]]})"),
       "g.json:3:36: an id in \"after\" must be a whole number, found a list"},
      {graph_text("3"), "g.json:3:8: an op must be an object, found 3"},
      // Numbers.
      {graph_text(R"({"id":-1,"lane":"a"})"), "g.json:3:14: the id of an op must not be negative, found -1"},
      {graph_text(R"({"id":0,"lane":"a","latency_s":-1e-9})"), "\"latency_s\" must not be negative, found -1e-09"},
      {graph_text(R"({"id":0,"lane":"a","demand":{"fair":-2}})"),
       "the amount of a demand must not be negative, found -2"},
      {R"({"resources":[{"name":"x","rate":-1,"sharing":"fair"}],"lanes":[],"ops":[]})",
       "\"rate\" must not be negative"},
      {graph_text(R"({"id":0,"lane":"a","demand":{"dead":1}})"), "g.json:3:37: demand on \"dead\", whose rate is 0"},
      {graph_text(R"({"id":0,"lane":"a","latency_s":1e7})"), "\"latency_s\" is more than 4.6e+06 s"},
      {graph_text(R"({"id":0,"lane":"a","demand":{"fair":1e14}})"), "the demand on \"fair\" takes more than 4.6e+06 s"},
      {graph_text(R"({"id":0,"lane":"a","latency_s":4e6},{"id":1,"lane":"a","latency_s":4e6})"),
       "g.json: the simulated time passes"},
      // Names.
      {graph_text(R"({"id":0,"lane":"z"})"), "g.json:3:23: unknown lane \"z\"; known: a, b, c"},
      {graph_text(R"({"id":0,"lane":"a","demand":{"hbm":1}})"),
       "g.json:3:37: unknown resource \"hbm\"; known: fair, fifo, dead"},
      {R"({"resources":[{"name":"x","rate":1,"sharing":"fifi"}],"lanes":[],"ops":[]})",
       "g.json:1:46: unknown sharing \"fifi\"; known: fair, fifo"},
      {R"({"resources":[],"lanes":["a","b","a"],"ops":[]})", "g.json:1:34: duplicate lane \"a\""},
      {R"({"resources":[{"name":"x","rate":1,"sharing":"fifo"},{"name":"x","rate":1,"sharing":"fifo"}],"lanes":[],"ops":[]})",
       "g.json:1:54: duplicate resource \"x\""},
      {graph_text(R"({"id":4,"lane":"a"},{"id":4,"lane":"b"})"), "g.json:3:28: duplicate op id 4"},
      {graph_text(R"({"id":4,"lane":"a","after":[3]})"), "g.json:3:36: op 4 waits for op 3, which does not exist"},
      {graph_text(R"({"id":0,"lane":"x\"\\"})"), "g.json:3:23: unknown lane \"x\"\\\""},
      // Cycles.
      {graph_text(R"({"id":4,"lane":"a","after":[4]})"), "g.json:3:8: cycle: op 4 waits for op 4"},
      {graph_text(R"({"id":1,"lane":"a","after":[2]},{"id":2,"lane":"b","after":[1]})"),
       "cycle: op 1 waits for op 2, which waits for op 1"},
      {graph_text(R"({"id":1,"lane":"a","after":[2]},{"id":2,"lane":"a"})"),
       "cycle: op 1 waits for op 2, which waits for op 1 (before it on lane \"a\")"},
  };
  for (const Case& c : cases) {
    INFO(c.text.substr(0, 400));
    const std::string message = refusal(c.text);
    CAPTURE(message);
    CHECK(contains(message, c.message));
  }
}

TEST_CASE("a cycle is found among other ops") {
  // On the cycle: 2 waits for 3, 3 for 4, 4 for 2. Before it: 0 and 1. After it: 5 and 6.
  const std::string message =
      refusal(graph_text(R"({"id":5,"lane":"c","after":[3]},{"id":6,"lane":"c","after":[5]},{"id":0,"lane":"a"},
{"id":1,"lane":"a","after":[0]},{"id":2,"lane":"a","after":[1,3]},{"id":3,"lane":"b","after":[4]},{"id":4,"lane":"a"})"));
  CHECK(contains(message,
                 "cycle: op 3 waits for op 4, which waits for op 2 (before it on lane \"a\"), which waits for op 3"));
}

TEST_CASE("a long cycle is abbreviated in its message") {
  std::string ops;
  for (int i = 0; i < 1000; ++i)
    ops += fmt::format(R"({}{{"id":{},"lane":"l{}","after":[{}]}})", i ? "," : "", i, i, (i + 1) % 1000);
  std::string lanes;
  for (int i = 0; i < 1000; ++i) lanes += fmt::format("{}\"l{}\"", i ? "," : "", i);
  const std::string message = refusal(fmt::format(R"({{"resources":[],"lanes":[{}],"ops":[{}]}})", lanes, ops));
  CHECK(contains(message, "cycle: op 0 waits for op 1, which waits for op 2"));
  CHECK(contains(message, "(1000 ops in all)"));
  CHECK(message.size() < 1000);
}

TEST_CASE("a long chain of ops is read and run") {
  std::string ops;
  for (int i = 0; i < 100'000; ++i) {
    ops += fmt::format(R"({}{{"id":{},"lane":"{}","latency_s":1e-6,"after":[{}]}})", i ? ",\n" : "", i,
                       i % 2 ? "a" : "b", i ? std::to_string(i - 1) : "");
  }
  const json result = json::parse(simulate_json(graph_text(ops), "g.json"));
  CHECK(result["makespan_s"] == 0.1);
}

TEST_CASE("mutated graphs are run or rejected with a location") {
  const Stream stream(20);
  std::uint64_t i = 0;
  const auto pick = [&](std::uint64_t n) { return stream.below(i++, n); };
  const std::vector<std::string> splices{"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"",
                                         "\\",
                                         "-",
                                         "0",
                                         "1e400",
                                         "null",
                                         "true",
                                         "-1",
                                         "1.5",
                                         "\"id\":1,",
                                         "\"after\":[0],",
                                         "\"lane\":\"copy\",",
                                         "[[[[",
                                         "\xc3\x28",
                                         "/*",
                                         std::string(1, '\0'),
                                         "99999999999999999999",
                                         "NaN",
                                         "\n",
                                         "{\"x\":{\"x\":"};
  int refused = 0, ran = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = kExample;
    for (std::uint64_t edits = 1 + pick(2); edits > 0; --edits) {
      const std::size_t at = pick(text.size());
      switch (pick(6)) {
        case 0:
          text.erase(at, 1 + pick(8));
          break;
        case 1:
          text.insert(at, splices[pick(splices.size())]);
          break;
        case 2:
          text[at] = static_cast<char>(pick(256));
          break;
        case 3:
          text.resize(at + 1);
          break;
        case 4: {  // another digit
          const std::size_t digit = text.find_first_of("0123456789", at);
          if (digit != std::string::npos) text[digit] = static_cast<char>('0' + pick(10));
          break;
        }
        default: {  // a piece of the text copied to another position
          const std::string piece = text.substr(at, 1 + pick(60));
          text.insert(pick(text.size()), piece);
        }
      }
      if (text.empty()) break;
    }
    INFO(text);
    try {
      const json result = json::parse(simulate_json(text, "g.json"));
      REQUIRE(result.contains("makespan_s"));
      ++ran;
    } catch (const UserError& error) {
      REQUIRE(contains(error.what(), "g.json"));
      ++refused;
    }
  }
  // Both outcomes must occur: most edits break the text, some change only a digit or a blank.
  CHECK(refused > 2000);
  CHECK(ran > 100);
}

}  // namespace kvcast::tests
