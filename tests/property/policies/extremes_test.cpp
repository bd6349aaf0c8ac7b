// Any setting of a policy either runs or is rejected with its name and location.
#include <catch2/catch.hpp>

#include "policies/all.hpp"
#include "settings.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

// "refused" or "ran"; any other exception escapes and fails the test.
std::string outcome(const policy::Descriptor& d, const std::string& settings, const trace::Layer& layer) {
  const std::string said = error_of([&] { select(d.name, settings, layer); });
  return said == "no error" ? "ran" : "refused";
}

TEST_CASE("both ends of every range run or are rejected") {
  const Profiles profiles;
  for (const TraceShape& shape :
       {TraceShape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 40, .steps = 3, .window = 40},
        TraceShape{.kv_heads = 1, .group = 1, .head_dim = 4, .prompt = 1, .steps = 2, .window = 1}}) {
    const MemoryTrace trace = random_trace(shape, 31);
    const auto layer = trace.load(0, 1);
    for (const policy::Descriptor& d : policy::all_policies()) {
      const std::string base = small_settings(d, 24, profiles.of(shape));
      int ran = 0;
      for (const policy::Parameter& p : d.parameters) {
        CAPTURE(d.name, p.key, shape.prompt);
        const bool numeric = p.names.empty() ? !std::holds_alternative<bool>(p.fallback)
                                             : std::any_of(p.names.begin(), p.names.end(),
                                                           [](const std::string& n) { return n.front() == '<'; });
        if (!numeric || p.key == "profile") continue;
        for (const double end : {p.low, p.low + 1, p.high}) {
          CAPTURE(end);
          ran += outcome(d, with(base, p.key, fmt::format("{:.0f}", end)), *layer) == "ran";
          ran += outcome(d, with("", p.key, fmt::format("{:.0f}", end)), *layer) == "ran";
        }
        // Values beyond the ends are always rejected.
        CHECK(outcome(d, with(base, p.key, fmt::format("{:.0f}", p.high * 2 + 1)), *layer) == "refused");
        CHECK(outcome(d, with(base, p.key, fmt::format("{:.0f}", p.low - 1)), *layer) == "refused");
      }
      CAPTURE(d.name);
      CHECK((ran > 0 || d.name == "full"));
    }
  }
}

TEST_CASE("values that no parameter can have are rejected") {
  const MemoryTrace trace =
      random_trace({.kv_heads = 1, .group = 1, .head_dim = 4, .prompt = 8, .steps = 1, .window = 8}, 32);
  const auto layer = trace.load(0, 1);
  const char* const odd[] = {"010",      "0x10",     "1e400",  ".inf", ".nan", "-0.5", "1.5.2", "99999999999999999999",
                             "[]",       "[4]",      "{a: 1}", "~",    "\"\"", "on",   "TRUE",  "budget",
                             "<number>", "<integer>"};
  for (const policy::Descriptor& d : policy::all_policies()) {
    for (const policy::Parameter& p : d.parameters) {
      if (p.key == "profile") continue;  // a path may be any text, and is rejected if there is no file
      for (const char* value : odd) {
        CAPTURE(d.name, p.key, value);
        // Some ranges include −0.5.
        if (std::string(value) == "-0.5" && p.low < 0) continue;
        const std::string said = error_of([&] { select(d.name, p.key + ": " + value, *layer); });
        CHECK(said != "no error");
        CHECK_THAT(said, Catch::StartsWith(d.name + ":1:"));
      }
      CHECK_THAT(error_of([&] { select(d.name, p.key + "x: 1", *layer); }),
                 Catch::Contains(p.key + "x") && Catch::Contains("known: "));
    }
  }
}

}  // namespace
}  // namespace kvcast::tests
