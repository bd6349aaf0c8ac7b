// `kvcast metrics`: the reference of the numbers, and the page generated from it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "app/record_of.hpp"
#include "result/metric.hpp"

namespace kvcast::tests {

using nlohmann::json;

TEST_CASE("metrics --json lists every metric with path, unit, direction and definition") {
  const Output o = kvcast({"metrics", "--json"});
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

TEST_CASE("accuracy and score numbers in run --json are metrics with the same paths") {
  const Scratch scratch;
  const std::string tasks = scratch.write("tasks.yaml", "one: {recipe: niah, steps: 4, score: exact, context: 1024}\n");
  const json r = record_of(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: quest, budget: 256}\nscore: " + tasks +
          "\nworkload: {prompt_tokens: 1024, decode_tokens: 16}\ntrace: {recipe: niah, layers: 1, steps: 4}\n",
      {});
  const json flat = r.flatten();
  int found = 0;
  for (const auto& [path, value] : flat.items()) {
    if (!value.is_number() || (!path.starts_with("/accuracy") && !path.starts_with("/score"))) continue;
    std::string name = path.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    if (name.find("interval.") != std::string::npos || name.starts_with("score.tasks.")) continue;  // lists
    INFO(name);
    CHECK(kvcast::result::find_metric(name) != nullptr);
    ++found;
  }
  CHECK(found >= 6);
}

TEST_CASE("metrics describes a metric by path and by alias, and refuses a misspelt one with a suggestion") {
  const Output by_alias = kvcast({"metrics", "tpot"}), by_path = kvcast({"metrics", "decode.tpot_s.mean"});
  CHECK(by_alias.code == 0);
  CHECK(by_alias.out == by_path.out);
  CHECK_THAT(by_alias.out, Catch::StartsWith("decode.tpot_s.mean\nMean time of a decode step") &&
                               Catch::Contains("lower") && Catch::Contains("decode time"));
  CHECK(json::parse(kvcast({"metrics", "tpot", "--json"}).out)["alias"] == "tpot");
  const Output list = kvcast({"metrics"});
  for (const auto& metric : kvcast::result::all_metrics()) CHECK_THAT(list.out, Catch::Contains(metric.path));
  const Output misspelt = kvcast({"metrics", "decode.tokens_per_second"});
  CHECK(misspelt.code == 2);
  CHECK_THAT(misspelt.err, Catch::Contains("unknown metric \"decode.tokens_per_second\" (did you mean "
                                           "\"decode.tokens_per_s\"?)"));
  CHECK(kvcast({"metrics", "tpot", "--markdown"}).code == 2);
}

TEST_CASE("the bytes read by a search in host memory follow the policy's formula") {
  // 64 tokens are more than 0.02 of the offloaded ones: 32 query heads read as many keys of 64 numbers of 4 bytes, an
  // edge of 4 bytes for each, and as many values, in 16 layers of 2 sequences.
  const json r = record_of(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\n"
      "policy: {name: retrieval_attention, budget: 64, sink: 4, recent: 32}\n"
      "workload: {prompt_tokens: 1000, decode_tokens: 40, batch: 2}\ntrace: {recipe: needle, layers: 1, steps: 4}\n",
      {});
  CHECK(r["traffic"]["cpu_dram_bytes"].get<double>() == Approx(2 * 16 * 32 * 64 * ((4 * 64 + 4) + 64 * 2)));
  CHECK_THAT(kvcast({"policies", "retrieval_attention"}).out,
             Catch::Contains("CPU n_q·(max(scanned·(L − sink − recent), budget)·(4·d + 4) + budget·d·b)"));
}

TEST_CASE("docs/metrics.md is what `kvcast metrics --markdown` prints") {
  const Output o = kvcast({"metrics", "--markdown"});
  REQUIRE(o.code == 0);
  INFO("run: kvcast metrics --markdown > docs/metrics.md");
  CHECK(o.out == slurp(std::string(KVCAST_SOURCE_DIR) + "/docs/metrics.md"));
}

}  // namespace kvcast::tests
