// Tests of the chart that is drawn from the answer of a choice among services.
#include <catch2/catch.hpp>

#include "plan/question.hpp"

namespace kvcast::tests {
namespace {

using nlohmann::json;
using plan::Chart;

Chart chart(const json& data) {
  plan::Answer answer;
  answer.kind = "choose", answer.data = data;
  return plan::chart_of(answer, {});
}

json column(const json& rows, const char* name) {
  json out = json::array();
  for (const json& row : rows) out.push_back(row.value(name, json()));
  return out;
}

}  // namespace

TEST_CASE("a choice of services draws what each costs at its capacity, with full KV as the baseline") {
  const auto served = [](const char* policy, double rate, double low, double high, double cost) {
    json out = {{"config", {{"policy.name", policy}}},
                {"metrics", {{"serving.ttft_s.p99", 0.25}}},
                {"capacity_per_s", rate},
                {"interval", {low, high}},
                {"binding_resource", nullptr}};
    if (rate > 0) out["cost_per_million_output_tokens"] = cost;
    return out;
  };
  json data = {{"objective", "cheapest"},
               {"settings",
                {served("quest", 8, 4, 10, 0.5), served("snapkv", 7, 7, 7, 0.51), served("tova", 0, 0, 0, 0),
                 served("full", 4, 0, 5, 1)}},
               {"out_of_reach",
                {{{"config", {{"policy.name", "h2o"}, {"hardware", "l40s"}}},
                  {"capacity_below_per_s", 6},
                  {"least_cost_per_million_output_tokens", 0.6}}}}};
  data["settings"][0]["config"]["scheduler.max_num_seqs"] = "16";
  data["settings"][2]["binding_resource"] = "serving.slo_share >= 99 %";
  data["best"] = {data["settings"][0], data["settings"][1]};
  Chart c = chart(data);
  CHECK(c.spec == "plan_capacities");
  const json& rows = c.data["rows"];
  // Settings without a capacity come last.
  CHECK(column(rows, "label") == json({"quest, 16 at a time", "snapkv", "full", "h2o, on l40s", "tova"}));
  CHECK(column(rows, "row") == json({0, 1, 2, 3, 4}));
  CHECK(column(rows, "sign") == json({"best", "tie", "", "above", "none"}));
  // The cost is inverse to the rate: 8 / 10 and 8 / 4 times 0.5, and without an end where no rate is certain.
  CHECK(column(rows, "low") == json({0.4, 0.51, 0.8, nullptr, nullptr}));
  CHECK(column(rows, "high") == json({1.0, 0.51, nullptr, nullptr, nullptr}));
  CHECK(column(rows, "text") ==
        json({"0.5 (0.4 to 1)", "0.51", "1 (0.8 or more)", "more than 0.6", "misses serving.slo_share >= 99 %"}));
  CHECK(column(rows, "of_full") == json({"0.50", "0.51", "1.00", "0.60", nullptr}));
  CHECK(rows[0]["ttft"] == "250 ms");
  CHECK(rows[0]["color"] == "variants/quest");
  CHECK(c.signals == json({{"x_title", "cost per million output tokens"},
                           {"full_kv", 1},
                           {"full_kv_is_more", false},
                           {"from", 0.4},
                           {"to", 1}}));
  // If there are more settings than the chart has rows, it shows the first ones, and the baseline in any case.
  for (int i = 0; i < 30; ++i) data["settings"].insert(data["settings"].begin() + 1, served("snapkv", 7, 7, 7, 0.55));
  c = chart(data);
  CHECK(c.data["rows"].size() == 24);
  CHECK(c.data["rows"].back()["label"] == "full");
  CHECK(c.signals["more"] == 11);
  // If no setting has a capacity, there is no chart.
  data["settings"] = {served("tova", 0, 0, 0, 0)}, data["best"] = data["out_of_reach"] = json::array();
  CHECK(chart(data).spec.empty());
  // Without prices the chart shows the GPUs that one request per second needs; without full KV it has no baseline.
  json fast = served("quest", 8, 4, 10, 0);
  fast["gpus_per_request_per_s"] = 0.125;
  c = chart({{"objective", "fastest"}, {"settings", {fast}}, {"best", {fast}}, {"out_of_reach", json::array()}});
  CHECK(c.signals["x_title"] == "GPUs for each request a second");
  CHECK_FALSE(c.signals.contains("full_kv"));
  CHECK(c.data["rows"][0]["high"] == 0.25);
}

}  // namespace kvcast::tests
