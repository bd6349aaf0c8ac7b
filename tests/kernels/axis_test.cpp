// Axes, options and rejected input.
#include "harness/axis.hpp"

#include <catch2/catch.hpp>

#include "harness/options.hpp"

namespace kvcast::tests {

using namespace kernels;

TEST_CASE("an axis is a list, a range or powers of two") {
  CHECK(parse_axis("op=read,write").values == std::vector<std::string>{"read", "write"});
  CHECK(parse_axis("n=3:10:3").values == std::vector<std::string>{"3", "6", "9"});
  CHECK(parse_axis("n=3:5").values == std::vector<std::string>{"3", "4", "5"});
  // 2^10, 2^12, 2^14
  CHECK(parse_axis("n[pow2]=10:14:2").values == std::vector<std::string>{"1024", "4096", "16384"});
  CHECK(parse_axis("n[pow2]=0,40").values == std::vector<std::string>{"1", "1099511627776"});
  CHECK(parse_axis("n[pow2]=3").name == "n");
}

TEST_CASE("an invalid axis is refused, and the message quotes the text found") {
  for (const char* text : {"", "n", "=1", "n=", "n=1,,2", "n=1,1", "n=5:1", "n=1:5:0", "n=1:5:-1", "n=1:2:3:4", "n=1:x",
                           "n=01:5", "n[pow3]=1", "[pow2]=1", "n[pow2]=41", "n[pow2]=-1", "n[pow2]=a", "n=0:4096",
                           "n=-9223372036854775808:9223372036854775807"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_axis(text), UsageError);
  }
  // Ends at the largest number there is, without stepping over it: 2^63 − 1 − 3 + {0, 2}.
  CHECK(parse_axis("n=9223372036854775804:9223372036854775807:2").values.size() == 2);
  CHECK_THROWS_WITH(parse_axis("n=7:x"), Catch::Contains("'x' is not a whole number"));
}

TEST_CASE("cases are the product of the axes, and the last axis varies fastest") {
  const auto cases = product({words("a", {"x", "y"}), numbers("b", {1, 2, 3})});
  REQUIRE(cases.size() == 6);
  CHECK(describe(cases[0]) == "a=x b=1");
  CHECK(describe(cases[1]) == "a=x b=2");
  CHECK(describe(cases[5]) == "a=y b=3");
  CHECK(product({}).size() == 1);
}

TEST_CASE("doubling ends at the last value and lists it once") {
  CHECK(doubling(1) == std::vector<std::int64_t>{1});
  CHECK(doubling(8) == std::vector<std::int64_t>{1, 2, 4, 8});
  CHECK(doubling(6) == std::vector<std::int64_t>{1, 2, 4, 6});
}

namespace {
void nothing(State&) {}
const std::vector<Bench>& two_benches() {
  static const std::vector<Bench> benches = {
      {"copy", "", {numbers("n", {1, 2}), words("op", {"a"})}, {}, {Mode::kCold, Mode::kBatch}, nothing},
      {"topk", "", {numbers("n", {5})}, {}, {Mode::kBatch}, nothing}};
  return benches;
}
}  // namespace

TEST_CASE("options choose benchmarks, axes and modes") {
  const Options o = parse_options({"--filter", "cop", "--axis", "n=7", "--mode", "batch", "--budget", "2.5"});
  CHECK(o.budget == 2.5);
  const auto chosen = select(two_benches(), o);
  REQUIRE(chosen.size() == 1);
  CHECK(chosen[0].axes[0].values == std::vector<std::string>{"7"});
  CHECK(chosen[0].axes[1].values == std::vector<std::string>{"a"});
  CHECK(chosen[0].modes == std::vector<Mode>{Mode::kBatch});
  CHECK(select(two_benches(), {}).size() == 2);
  CHECK(select(two_benches(), parse_options({"--bench", "topk"}))[0].name == "topk");
  // Percent on the command line, a ratio inside.
  CHECK(parse_options({"--max-noise", "2"}).limits.max_noise == Approx(0.02));
}

TEST_CASE("wrong options are refused") {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--frob"},
                                                    {"--json"},
                                                    {"--mode", "warm"},
                                                    {"--budget", "0"},
                                                    {"--budget", "1s"},
                                                    {"--budget", "-1"},
                                                    {"--timeout", "nan"},
                                                    {"--axis", "n"}}) {
    INFO(arguments[0]);
    CHECK_THROWS_AS(parse_options(arguments), UsageError);
  }
  CHECK_THROWS_AS(select(two_benches(), parse_options({"--bench", "cop"})), UsageError);
  CHECK_THROWS_AS(select(two_benches(), parse_options({"--filter", "frob"})), UsageError);
  // "op" exists, but not in what was chosen.
  CHECK_THROWS_AS(select(two_benches(), parse_options({"--bench", "topk", "--axis", "op=b"})), UsageError);
}

}  // namespace kvcast::tests
