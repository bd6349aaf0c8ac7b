// `kvcast metrics`: the reference of the numbers, and the page that is made of it.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "result/metric.hpp"

using kvcast::test::Output;
using nlohmann::json;

TEST_CASE("metrics --json lists every metric with path, unit, direction and definition") {
  const Output o = kvcast::test::kvcast({"metrics", "--json"});
  REQUIRE(o.code == 0);
  const json list = json::parse(o.out);
  REQUIRE(list.size() == kvcast::result::all_metrics().size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& metric = kvcast::result::all_metrics()[i];
    CHECK(list[i]["path"] == metric.path);
    CHECK(list[i]["unit"] == unit_name(metric.unit));
    CHECK(list[i]["better"] == better_name(metric.better));
    CHECK(list[i]["definition"] == metric.definition);
  }
}

TEST_CASE("a metric is described by path and by alias, and a misspelt one is refused with a suggestion") {
  const Output by_alias = kvcast::test::kvcast({"metrics", "tpot"}),
               by_path = kvcast::test::kvcast({"metrics", "decode.tpot_s.mean"});
  CHECK(by_alias.code == 0);
  CHECK(by_alias.out == by_path.out);
  CHECK_THAT(by_alias.out, Catch::StartsWith("decode.tpot_s.mean\nMean time of a decode step") &&
                               Catch::Contains("lower") && Catch::Contains("decode time"));
  CHECK(json::parse(kvcast::test::kvcast({"metrics", "tpot", "--json"}).out)["alias"] == "tpot");
  const Output list = kvcast::test::kvcast({"metrics"});
  for (const auto& metric : kvcast::result::all_metrics()) CHECK_THAT(list.out, Catch::Contains(metric.path));
  const Output misspelt = kvcast::test::kvcast({"metrics", "decode.tokens_per_second"});
  CHECK(misspelt.code == 2);
  CHECK_THAT(misspelt.err, Catch::Contains("unknown metric \"decode.tokens_per_second\" (did you mean "
                                           "\"decode.tokens_per_s\"?)"));
  CHECK(kvcast::test::kvcast({"metrics", "tpot", "--markdown"}).code == 2);
}

TEST_CASE("docs/metrics.md is what `kvcast metrics --markdown` prints") {
  const Output o = kvcast::test::kvcast({"metrics", "--markdown"});
  REQUIRE(o.code == 0);
  INFO("run: kvcast metrics --markdown > docs/metrics.md");
  CHECK(o.out == kvcast::test::slurp(std::string(KVCAST_SOURCE_DIR) + "/docs/metrics.md"));
}
