#include <catch2/catch.hpp>

#include "config/yaml.hpp"
#include "policies/all.hpp"
#include "policy/parameters.hpp"
#include "policy/policy.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

const std::vector<Parameter>& declared() {
  static const std::vector<Parameter> list = {
      {.key = "budget", .fallback = std::int64_t{64}, .unit = "tokens", .meaning = "", .low = 1, .high = 1000},
      {.key = "tau", .fallback = 0.8, .unit = "", .meaning = "", .low = -1, .high = 1},
      {.key = "correction", .fallback = true, .unit = "", .meaning = ""},
      {.key = "pool", .fallback = std::string("max"), .unit = "", .meaning = "", .names = {"max", "avg"}},
      {.key = "split",
       .fallback = std::string("adaptive"),
       .unit = "",
       .meaning = "",
       .high = 1,
       .names = {"adaptive", "<number>"}},
      {.key = "steps",
       .fallback = std::string("all"),
       .unit = "",
       .meaning = "",
       .high = 50,
       .names = {"all", "<integer>"}}};
  return list;
}

ParameterValues values(const std::string& yaml) { return {declared(), config::parse_yaml(yaml, "p.yaml")}; }

std::string refusal(const std::string& yaml) {
  return error_of([&] { values(yaml); });
}

TEST_CASE("defaults apply unless a value is given") {
  const ParameterValues none(declared(), config::Node{});
  CHECK(none.integer("budget") == 64);
  CHECK(none.number("tau") == 0.8);
  CHECK(none.flag("correction"));
  CHECK(none.text("pool") == "max");
  CHECK(none.is_text("split"));
  CHECK_FALSE(none.given("budget"));

  const ParameterValues some = values("{budget: 128, tau: -0.5, correction: false, pool: avg, split: 0.3, steps: 7}");
  CHECK(some.integer("budget") == 128);
  CHECK(some.number("tau") == -0.5);
  CHECK_FALSE(some.flag("correction"));
  CHECK(some.text("pool") == "avg");
  CHECK_FALSE(some.is_text("split"));
  CHECK(some.number("split") == 0.3);
  CHECK(some.integer("steps") == 7);
  CHECK(some.number("steps") == 7.0);
  CHECK(some.given("budget"));
  CHECK(some.where("budget").line == 1);
  CHECK(values("{split: adaptive, steps: all}").is_text("steps"));
}

TEST_CASE("undeclared, mistyped and out-of-range values are rejected with their location") {
  CHECK_THAT(refusal("{budgte: 3}"), Catch::StartsWith("p.yaml:1:") && Catch::Contains("budgte") &&
                                         Catch::Contains("known: budget, tau, correction, pool, split, steps"));
  CHECK_THAT(refusal("budget: 64\ntau: 1.5"), Catch::StartsWith("p.yaml:2:") && Catch::Contains("out of range"));
  CHECK_THAT(refusal("{budget: 0}"), Catch::Contains("out of range"));
  CHECK_THAT(refusal("{budget: 12.5}"), Catch::Contains("integer"));
  CHECK_THAT(refusal("{budget: 010}"), Catch::Contains("leading zeros"));
  CHECK_THAT(refusal("{tau: .nan}"), Catch::Contains("number"));
  CHECK_THAT(refusal("{correction: yes}"), Catch::Contains("true or false"));
  CHECK_THAT(refusal("{pool: median}"), Catch::Contains("median") && Catch::Contains("max, avg"));
  CHECK_THAT(refusal("{split: 1.5}"), Catch::Contains("out of range"));
  CHECK_THAT(refusal("{split: fast}"), Catch::Contains("adaptive, <number>"));
  CHECK_THAT(refusal("{split: <number>}"), Catch::Contains("unknown value"));
  CHECK_THAT(refusal("{steps: 2.5}"), Catch::Contains("integer"));
  CHECK_THAT(refusal("{budget: [1]}"), Catch::Contains("integer"));
  CHECK_THAT(refusal("[budget]"), Catch::Contains("map"));
}

std::string refused_policy(const std::string& name, const std::string& yaml) {
  return error_of([&] { make_policy(find_policy(name), config::parse_yaml(yaml, "p.yaml"))->check({1000, 10}); });
}

TEST_CASE("contradictory parameters are rejected") {
  CHECK_THAT(refused_policy("streaming_llm", "{budget: 64, sink: 4, recent: 32}"),
             Catch::Contains("64") && Catch::Contains("p.yaml:1:"));
  CHECK(refused_policy("streaming_llm", "{budget: 64, sink: 4, recent: 60}") == "no error");
  CHECK(refused_policy("streaming_llm", "{sink: 8, recent: 32}") == "no error");
  CHECK_THAT(refused_policy("streaming_llm", "{budget: 3}"), Catch::Contains("sink (4)"));
  CHECK_THAT(refused_policy("snapkv", "{budget: 64, window: 65}"), Catch::Contains("window (65 tokens)"));
  CHECK_THAT(refused_policy("snapkv", "{budget: 64, pool_kernel: 4}"), Catch::Contains("odd"));
  CHECK_THAT(refused_policy("quest", "{budget: 8}"), Catch::Contains("one page (16 tokens)"));
  CHECK_THAT(refused_policy("quest", "{budget_convention: traffic, page: 8}"),
             Catch::Contains("the budget determines the page"));
  CHECK_THAT(refused_policy("arkvale", "{budget: 96, sink: 32, recent: 64}"), Catch::Contains("4 pages of 32"));
  CHECK_THAT(refused_policy("arkvale", "{recall: batched, runtime: python}"),
             Catch::Contains("one call for each piece"));
  CHECK_THAT(refused_policy("freekv", "{budget: 512, sink: 512}"), Catch::Contains("one page (32)"));
  CHECK(refused_policy("freekv", "{budget: 512, sink: 512, budget_convention: selected}") == "no error");
  CHECK_THAT(refused_policy("full", "{budget: 8}"), Catch::Contains("budget"));
  CHECK_THAT(error_of([] { find_policy("snapvk"); }),
             Catch::Contains("snapvk") && Catch::Contains("snapkv, pyramidkv"));
}

TEST_CASE("every policy accepts sink, recent and budget_convention, at least with neutral values") {
  for (const Descriptor& d : all_policies()) {
    CAPTURE(d.name);
    const auto own = [&](const std::string& key) {
      return std::any_of(d.parameters.begin(), d.parameters.end(), [&](const auto& p) { return p.key == key; });
    };
    const auto refusal = [&](const std::string& yaml) {
      return error_of([&] { ParameterValues(d, config::parse_yaml(yaml, "p.yaml")); });
    };
    for (const std::string key : {"sink", "recent"}) {
      CHECK(refusal("{" + key + ": 0}") == "no error");
      if (own(key)) continue;
      CHECK_FALSE(ParameterValues(d, config::parse_yaml("{" + key + ": 0}", "p.yaml")).all().contains(key));
      CHECK_THAT(refusal("{" + key + ": 4}"),
                 Catch::StartsWith("p.yaml:1:") && Catch::Contains(d.name) && Catch::Contains("known: 0"));
    }
    const std::string convention = name(d.budget_counts());
    CHECK(refusal("{budget_convention: " + convention + "}") == "no error");
    if (const auto rule = budget_rule(d, ParameterValues(d, config::parse_yaml("{}", "p.yaml")), {4096, 16}))
      CHECK(convention == name(rule->counts));
    if (own("budget_convention")) continue;
    CHECK_THAT(refusal("{budget_convention: all}"), Catch::Contains(d.name) && Catch::Contains("known: " + convention));
  }
  CHECK_THAT(refused_policy("quest", "{budget: 64, sink: 33, recent: 2}"), Catch::Contains("5 pages of 16, but 4"));
  CHECK(refused_policy("quest", "{budget: 64, sink: 32, recent: 2}") == "no error");
  CHECK_THAT(refused_policy("exact_topk", "{budget: 64, sink: 33, recent: 32}"), Catch::Contains("exceed the budget"));
}

TEST_CASE("every policy describes itself") {
  for (const Descriptor& d : all_policies()) {
    CAPTURE(d.name);
    CHECK(d.sentence.ends_with('.'));
    CHECK(d.uncompressed() == (d.name == "full"));
    CHECK_FALSE(d.paper.empty());
    CHECK_FALSE(d.formulas.empty());
    const bool has_budget =
        std::any_of(d.parameters.begin(), d.parameters.end(), [](const auto& p) { return p.key == "budget"; });
    CHECK(has_budget != d.budget_convention.empty());
    for (const Parameter& p : d.parameters) {
      CAPTURE(p.key);
      CHECK_FALSE(p.meaning.empty());
      if (std::holds_alternative<std::string>(p.fallback)) CHECK_FALSE(p.names.empty());
    }
    CHECK(&find_policy(d.name) == &d);
  }
}

}  // namespace
}  // namespace kvcast::tests
