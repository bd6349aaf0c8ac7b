// Chart data made from a plan's answers.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <map>

#include "base/error.hpp"
#include "plan/chart.hpp"
#include "report/answers.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using kvcast::plan::axis_of;
using kvcast::plan::KeyAxis;
using kvcast::plan::Machines;
using kvcast::report::answers_json;
using kvcast::report::filled_spec;
using kvcast::report::Palette;
using kvcast::report::Table;
using kvcast::store::Answer;
using kvcast::store::Store;
using nlohmann::json;

namespace {

Palette answer_palette() {
  return Palette(json::parse(R"({
    "policies": {"full": {"color": "grey", "symbol": "circle"}, "quest": {"color": "#ff0000", "symbol": "square"}},
    "shades": [0, -0.5], "signs": {"more": "orange", "less": "blue", "none": "pale"},
    "cycles": {"machines": ["red", "green"]}
  })"));
}

// The answers of a store that has one experiment of each of full and quest.
json read(const std::vector<Answer>& answers) {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  store.set_machine("h100", {{"gpu.hbm_bandwidth", 3.35e12, "bytes/s", kvcast::Origin::kDatasheet, 0.1, "sheet"},
                             {"link.h2d_bandwidth", {}, "bytes/s", kvcast::Origin::kMeasured, 0.1, "us"}});
  store.set_answers(answers);
  Table experiments;
  for (const char* policy : {"full", "quest"}) experiments.begin_row(), experiments.set("policy", std::string(policy));
  Palette colors = answer_palette();
  return answers_json(answers, store.machines(), experiments, colors);
}

json chart(const std::string& kind, const json& data, const std::string& question = "Why?") {
  return read({{kind, question, "Because.", {}, data, 1}})[0]["chart"];
}

json column(const json& rows, const char* name) {
  json out = json::array();
  for (const json& row : rows) out.push_back(row.value(name, json()));
  return out;
}

json side(double value) { return {{"fits", true}, {"value", value}, {"binding_resource", "hbm bandwidth"}}; }
json misfit(const json& value = nullptr) {
  json out = {{"fits", false}, {"binding_resource", "hbm capacity"}};
  if (value.is_number()) out["value"] = value;
  return out;
}

json why(double of, double against, const json& parts) {
  return {{"of", "quest, budget 2048"},
          {"against", "full"},
          {"seconds", {{"of", of}, {"against", against}}},
          {"binding_resource", {{"of", "kernel latency"}, {"against", "hbm bandwidth"}}},
          {"parts", parts}};
}
json part(const std::string& kind, double seconds) {
  return {{"kind", kind}, {"resource", "hbm bandwidth"}, {"seconds", seconds}};
}

}  // namespace

TEST_CASE("an answer is shown with its details as lines, and a kind without a chart draws nothing") {
  const json answers = read({{"why", "Why?", "No difference.", {"a", "  b"}, {{"parts", json::array()}}, 2},
                             {"compared", "What?", "That.", {}, json::object(), 0}});
  CHECK(answers == json::parse(R"([
    {"name": "plan_1_why", "kind": "why", "question": "Why?", "text": "No difference.", "details": ["a", "  b"],
     "runs": 2, "chart": null},
    {"name": "plan_2_compared", "kind": "compared", "question": "What?", "text": "That.", "details": [], "runs": 0,
     "chart": null}])"));
  CHECK(read({}) == json::array());
}

TEST_CASE("an unreadable answer is named") {
  CHECK_THROWS_AS(read({{"why", "Why?", "", {}, {{"parts", {1}}}, 2}}), kvcast::UserError);
  CHECK_THROWS_WITH(read({{"why", "Why?", "", {}, {{"parts", {1}}}, 2}}), Catch::Contains("plan_1_why"));
  CHECK_THROWS_WITH(read({{"poem", "Why?", "", {}, json::object(), 2}}),
                    Catch::Contains("unknown kind of answer \"poem\""));
}

TEST_CASE("keys are shown in the units of machines, with a prefix for the largest value") {
  const Machines machines = {{"h100",
                              {{"gpu.hbm_bandwidth", 3.35e12, "bytes/s", kvcast::Origin::kDatasheet, 0, ""},
                               {"host.launch", 4e-6, "seconds", kvcast::Origin::kMeasured, 0, ""},
                               {"host.cores", 64.0, "number", kvcast::Origin::kDatasheet, 0, ""},
                               {"link.h2d_bandwidth", {}, "bytes/s", kvcast::Origin::kMeasured, 0, ""}}}};
  const KeyAxis bandwidth = axis_of("hardware.gpu.hbm_bandwidth", 8e12, machines);
  CHECK(bandwidth.title == "gpu.hbm_bandwidth, TB/s");
  CHECK(bandwidth.shown(3.35e12) == Approx(3.35));
  CHECK(bandwidth.text(3.352e12) == "3.35 TB/s");
  CHECK(axis_of("hardware.host.launch", 4e-6, machines).text(4e-6) == "4 µs");
  CHECK(axis_of("hardware.host.cores", 128, machines).title == "host.cores");
  CHECK(axis_of("hardware.link.h2d_bandwidth", 2, machines).text(0.75) == "0.75 times");
  const KeyAxis prompt = axis_of("workload.prompt_tokens", 65536, machines);
  CHECK(prompt.text(32768) == "32K");
  CHECK(prompt.text(32769) == "32,769");
  CHECK(axis_of("workload.batch", 64, machines).text(1024) == "1,024");
  CHECK(axis_of("policy.split_factor", 1, machines).title == "policy.split_factor");
}

TEST_CASE("a break-even chart shows both variants, their crossing, and where one of them does not fit") {
  json data = {{"key", "workload.batch"}, {"of", "quest, budget 2048"}, {"against", "full"}, {"always", nullptr}};
  data["crossings"] = {{{"value", 4},
                        {"interval", {2, 7}},
                        {"below", {{"better", "full"}}},
                        {"above", {{"better", "quest, budget 2048"}}}}};
  data["metric"] = "decode.tokens_per_s";
  // Full KV does not fit from 32 on; at 32 and 48 quest was not simulated.
  data["samples"] = {{{"x", 1}, {"of", side(60)}, {"against", side(80)}},
                     {{"x", 8}, {"of", side(400)}, {"against", side(300)}},
                     {{"x", 32}, {"of", nullptr}, {"against", misfit()}},
                     {{"x", 48}, {"of", nullptr}, {"against", misfit()}},
                     {{"x", 64}, {"of", side(900)}, {"against", misfit()}}};
  const json c = chart("break_even", data);
  CHECK(c["name"] == "plan_break_even");
  const json& points = c["data"]["points"];
  CHECK(column(points, "x") == json({1, 8, 64, 1, 8}));
  CHECK(column(points, "y") == json({60, 400, 900, 80, 300}));
  CHECK(column(c["data"]["misfits"], "x") == json({32, 48, 64}));
  CHECK(column(c["data"]["series"], "color") == json({"#ff0000", "grey"}));
  CHECK(c["data"]["crossings"] == json::parse(R"([{"order": 0, "value": 4, "low": 2, "high": 7, "text": "4",
                                                   "interval": "80 %: 2 to 7", "better": "quest, budget 2048"}])"));
  CHECK(c["signals"]["y_title"] == "decode throughput, tokens/s");
  CHECK(c["signals"]["x_title"] == "batch, sequences");
  // The key's range, 1 to 64, is wide, and so is the metric's, 60 to 900.
  CHECK(c["scales"]["x"] == json::parse(R"({"type": "log", "base": 2})"));
  CHECK(c["scales"]["y"] == json::parse(R"({"type": "log", "base": 10, "padding": 8})"));
  CHECK(c["signals"]["y_values"] == json({100, 200, 500}));  // from 60 to 900
}

TEST_CASE("times are drawn in the unit of the page, and close values on a linear axis") {
  json data = {{"key", "hardware.gpu.hbm_bandwidth"}, {"of", "hardware x"}, {"against", "full"}, {"always", "full"}};
  data["crossings"] = json::array();
  data["samples"] = {{{"x", 1e12}, {"of", side(0.02)}, {"against", side(0.01)}},
                     {{"x", 3e12}, {"of", side(0.015)}, {"against", side(0.0075)}}};
  data["metric"] = "decode.tpot_s.mean";
  const json c = chart("break_even", data);
  CHECK(c["signals"]["y_title"] == "time per output token, mean, ms");
  CHECK(column(c["data"]["points"], "y") == json({20, 15, 10, 7.5}));
  CHECK(column(c["data"]["points"], "x") == json({1, 3, 1, 3}));
  CHECK(c["signals"]["to"] == 3);
  CHECK(c["scales"]["x"]["type"] == "linear");  // the ratio is 3 to 1
  CHECK(c["scales"]["y"]["zero"] == true);
}

TEST_CASE("targets alone are drawn as the parts of the range in which they are met") {
  json data = {{"key", "workload.batch"}, {"of", "the run"}, {"against", nullptr}, {"always", nullptr}};
  data["samples"] = {{{"x", 1}, {"of", misfit()}, {"against", nullptr}},
                     {{"x", 8}, {"of", misfit()}, {"against", nullptr}}};
  data["crossings"] = {
      {{"value", 5}, {"interval", {5, 5}}, {"below", {{"better", "met"}}}, {"above", {{"better", "missed"}}}}};
  const json c = chart("break_even", data);
  CHECK(c["name"] == "plan_targets");
  CHECK(c["data"]["parts"] ==
        json::parse(R"([{"from": 1, "to": 5, "state": "met"}, {"from": 5, "to": 8, "state": "missed"}])"));
  CHECK(c["data"]["crossings"][0]["interval"] == "");
  data["crossings"] = json::array(), data["always"] = "met";
  CHECK(chart("break_even", data)["data"]["parts"] == json::parse(R"([{"from": 1, "to": 8, "state": "met"}])"));
}

TEST_CASE("a waterfall ends at the second total and combines small parts") {
  // 10 ms less 4, 2 more, and ten parts of -0.01 ms each: 7.9 ms. Parts below a hundredth of the difference of 2.1 ms,
  // which is 0.021 ms, are combined.
  json parts = {part("attention", -4e-3), part("score", 2e-3)};
  for (int i = 0; i < 10; ++i) parts.push_back(part("small", -1e-5));
  const json c = chart("why", why(7.9e-3, 10e-3, parts));
  const json& steps = c["data"]["steps"];
  CHECK(column(steps, "label") == json({"full", "attention", "score", "all others", "quest"}));
  CHECK(column(steps, "under") ==
        json({"bottleneck hbm bandwidth", "hbm bandwidth", "hbm bandwidth", "10 parts", "budget 2048"}));
  CHECK(column(steps, "text") == json({"10 ms", "−4 ms", "+2 ms", "−0.1 ms", "7.9 ms"}));
  CHECK(column(steps, "color") == json({"grey", "blue", "orange", "blue", "#ff0000"}));
  const double from[] = {0, 10, 6, 8, 0}, to[] = {10, 6, 8, 7.9, 7.9};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(steps[i]["from"].get<double>() == Approx(from[i]));
    CHECK(steps[i]["to"].get<double>() == Approx(to[i]));
  }
  CHECK(c["signals"]["x_min"] == 0);
  CHECK(c["signals"]["x_max"] == Approx(10));
  CHECK(c["signals"]["x_title"] == "time, ms");
}

TEST_CASE(
    "small differences between long times are enlarged on an axis whose title states that it does not start at 0") {
  const json c = chart("why", why(0.0999, 0.1, json::array({part("attention", -1e-4)})));
  // The difference is 0.1 ms of 100 ms: the axis starts as far below the smaller total.
  CHECK(c["signals"]["x_min"].get<double>() == Approx(99.8));
  CHECK(c["signals"]["x_title"] == "time, ms (the axis does not start at 0)");
  // A difference a hundredth of that is too small to enlarge.
  const json equal = chart("why", why(0.099999, 0.1, json::array({part("attention", -1e-6)})));
  CHECK(equal["signals"]["x_min"] == 0);
  CHECK(equal["signals"]["x_title"] == "time, ms");
}

TEST_CASE("sensitivities have at most fifteen bars, and none for keys without an effect") {
  json data = {{"metric", "decode.tokens_per_s"}, {"sensitivities", json::array()}};
  CHECK(chart("sensitivities", data).is_null());
  for (int i = 0; i < 20; ++i) {
    data["sensitivities"].push_back({{"key", fmt::format("k{}", i)}, {"elasticity", i % 2 == 0 ? 1.0 : -0.25}});
  }
  const json c = chart("sensitivities", data);
  CHECK(c["data"]["elasticities"].size() == 15);
  CHECK(c["data"]["elasticities"][0] == json::parse(R"({"row": 0, "key": "k0", "elasticity": 1, "text": "+1"})"));
  CHECK(c["data"]["elasticities"][1]["text"] == "−0.25");
  CHECK(c["signals"]["x_title"] == "elasticity of decode throughput, % per %");
  data["sensitivities"][2]["elasticity"] = 0;
  CHECK(chart("sensitivities", data)["data"]["elasticities"].size() == 2);
}

TEST_CASE("a choice draws the front and the best settings once each") {
  const auto entry = [](const char* policy, const char* batch, double tps, double bytes) {
    return json{{"config", {{"policy.name", policy}, {"workload.batch", batch}}},
                {"metrics",
                 {{"request.output_tokens_per_s", tps},
                  {"request.ttft_s", 2},
                  {"request.latency_s", 7.5},
                  {"decode.tpot_s.mean", 0.01},
                  {"memory.hbm_peak_bytes", bytes}}},
                {"binding_resource", "hbm bandwidth"}};
  };
  json data;
  data["best"] = {entry("quest", "16", 900, 40e9), entry("full", "16", 880, 50e9)};
  data["front"] = {entry("quest", "16", 900, 40e9), entry("full", "1", 90, 20e9), entry("full", "2", 80, 30e9)};
  json c = chart("choose", data);
  CHECK(column(c["data"]["points"], "label") ==
        json({"quest, batch 16", "full, batch 16", "full, batch 1", "full, batch 2"}));
  CHECK(column(c["data"]["points"], "best") == json({"best", "open", "", ""}));
  CHECK(column(c["data"]["points"], "hbm") == json({40, 50, 20, 30}));
  // In order of memory, the edge has only points faster than all before: neither 80 at 30 GB nor 880 at 50 GB.
  CHECK(c["data"]["edge"] == json::parse(R"([{"x": 20, "tps": 90}, {"x": 40, "tps": 900}])"));
  CHECK(c["data"]["points"][0]["ttft"] == "2 s");
  CHECK(c["data"]["points"][0]["latency"] == "7.5 s");
  CHECK(c["signals"]["priced"] == false);
  CHECK(c["data"]["policies"] == json::parse(R"([{"policy": "full", "color": "grey", "symbol": "circle"},
                                                 {"policy": "quest", "color": "#ff0000", "symbol": "square"}])"));
  CHECK(c["signals"]["scored"] == false);
  CHECK(c["unused"] == json({"machine", "score", "symbol"}));
  data["best"][0]["metrics"]["score"] = 0.975, data["best"][0]["metrics"]["cost_per_million_tokens"] = 0.1234;
  c = chart("choose", data);
  CHECK(c["signals"]["scored"] == true);
  CHECK(c["unused"] == json({"color", "machine"}));
  CHECK(c["data"]["points"][0]["score"] == Approx(97.5));
  CHECK(c["data"]["points"][0]["cost"] == "0.123");
  CHECK(c["signals"]["priced"] == false);  // the other points have no cost: the axis stays memory
  CHECK(column(c["data"]["points"], "x") == column(c["data"]["points"], "hbm"));
  double cost = 0.1;
  for (const char* list : {"best", "front"}) {
    for (json& e : data[list]) e["metrics"]["cost_per_million_tokens"] = cost += 0.1, e["config"]["hardware"] = "h200";
  }
  c = chart("choose", data);
  CHECK(c["signals"]["priced"] == true);
  CHECK(c["signals"]["several_machines"] == false);
  CHECK(c["data"]["points"][1]["x"] == Approx(0.3));
  // Colours show several machines, and shapes the policies; the score is left to the tooltip.
  data["best"][1]["config"]["hardware"] = "l40s";
  c = chart("choose", data);
  CHECK(c["signals"]["several_machines"] == true);
  CHECK(c["unused"] == json({"color", "score"}));
  const json& machines = c["data"]["machines"];
  CHECK(column(machines, "machine") == json({"h200", "l40s"}));
  CHECK(machines[0]["color"] != machines[1]["color"]);
  CHECK(c["data"]["points"][0]["machine_color"] == machines[0]["color"]);
  CHECK(c["data"]["points"][1]["machine_color"] == machines[1]["color"]);
  CHECK(chart("choose", {{"best", json::array()}, {"front", json::array()}}).is_null());
}

TEST_CASE("a map has a colour for each policy, and its borders between the cells") {
  const auto cell = [](double x, double y, const char* best, bool told_apart) {
    return json{{"x", x},
                {"y", y},
                {"best", best},
                {"simulated", true},
                {"told_apart", told_apart},
                {"times", 1.5},
                {"binding_resource", "hbm bandwidth"}};
  };
  json data = {{"x", "workload.batch"}, {"y", "workload.prompt_tokens"}, {"metric", "decode.tokens_per_s"}};
  data["cells"] = {cell(1, 1024, "full", false), cell(2, 1024, "quest, budget 64", true),
                   cell(1, 2048, "quest, budget 32", true), cell(2, 2048, "none", true)};
  data["borders"] = {{{"x", {1, 2}}, {"y", {1024, 1024}}}, {{"x", {1, 1}}, {"y", {1024, 2048}}}};
  const json c = chart("map", data);
  CHECK(c["data"]["series"] == json::parse(R"([{"series": "full", "color": "grey"},
    {"series": "quest, budget 32", "color": "#ff0000"}, {"series": "quest, budget 64", "color": "#800000"},
    {"series": "none", "color": "pale"}])"));
  CHECK(column(c["data"]["places"], "color") == json({"grey", "#800000", "#ff0000", "pale"}));
  CHECK(column(c["data"]["places"], "open") == json({true, false, false, false}));
  CHECK(c["data"]["places"][0]["where"] == "workload.batch 1, workload.prompt_tokens 1K");
  CHECK(c["data"]["edges"] ==
        json::parse(R"([{"across": true, "x": 2, "y": 1024}, {"across": false, "x": 1, "y": 1024}])"));
  CHECK(c["signals"]["xs"] == json({1, 2}));
  CHECK(c["signals"]["ys"] == json({1024, 2048}));
  CHECK(column(c["data"]["places"], "distinguished") == json({"no", "yes", "yes", nullptr}));
  CHECK(column(c["data"]["places"], "times") == json({"1.5", "1.5", "1.5", nullptr}));
  // Without a second-best setting nothing is compared.
  data["cells"][1]["told_apart"] = nullptr, data["cells"][1]["times"] = nullptr;
  const json alone = chart("map", data)["data"]["places"][1];
  CHECK(alone["open"] == false);
  CHECK_FALSE(alone.contains("times"));
  CHECK_FALSE(alone.contains("distinguished"));
}

TEST_CASE("changes are ratios, filled if they are beyond their intervals, and changes from zero are omitted") {
  const auto change = [](const char* setting, const json& times, double low, double high, bool beyond, bool better) {
    return json{{"setting", setting},      {"before", 1},      {"after", 2},      {"times", times},
                {"interval", {low, high}}, {"beyond", beyond}, {"better", better}};
  };
  const json c =
      chart("changes", {{"metric", "prefill.ttft_s"},
                        {"before", "a"},
                        {"after", "b"},
                        {"changes",
                         {change("x", nullptr, 1, 1, true, false), change("y", 0.5, 0.4, 0.6, true, true),
                          change("z", 1.1, 0.9, 1.2, false, false), change("w", 1.002, 1.001, 1.003, true, false)}}});
  CHECK(c.at("name") == "plan_changes");
  const json& rows = c.at("data").at("changes");
  CHECK(column(rows, "setting") == json({"y", "z", "w"}));
  CHECK(column(rows, "row") == json({0, 1, 2}));
  CHECK(column(rows, "color") == json({"blue", "orange", "orange"}));
  CHECK(column(rows, "beyond") == json({true, false, true}));
  CHECK(column(rows, "change") == json({"better", "worse, within its interval", "worse"}));
  CHECK(column(rows, "text") == json({"0.5", "1.1", "+0.2 %"}));
  CHECK(c.at("signals").at("least") == 0.4);
  CHECK(c.at("signals").at("most") == 1.2);
  CHECK(c.at("signals").at("x_title") == "time to first token of the whole batch, b / a");
  CHECK(c.at("scales").at("x").at("type") == "linear");
}

TEST_CASE("the largest value is drawn on its range, with its interval and its limit") {
  json data = {
      {"key", "workload.batch"}, {"value", 11}, {"limited_by", "hbm"}, {"interval", {9, 16}}, {"range", {1, 20}}};
  json c = chart("largest", data);
  CHECK(c["data"]["values"] == json::parse(R"([{"value": 11, "low": 9, "high": 16, "text": "11", "interval": "9 to 16",
                                                "limit": "GPU memory"}])"));
  CHECK(c["signals"]["to"] == 20);
  data["range"] = {1, 4096}, data["interval"] = {nullptr, 16}, data["limited_by"] = nullptr;
  c = chart("largest", data);
  CHECK(c["signals"]["from"] == 1);
  CHECK(c["signals"]["to"] == 4096);
  CHECK(c["data"]["values"][0]["low"] == 1);  // none of the settings is certain
  CHECK(c["data"]["values"][0]["limit"] == "the end of the range");
  CHECK(c["scales"]["x"]["type"] == "log");
  data["value"] = nullptr;
  CHECK(chart("largest", data).is_null());
}

TEST_CASE("a specification is filled with an answer's rows, signals and scales") {
  const json spec = json::parse(R"({"data": [{"name": "a"}, {"name": "b", "source": "a"}],
    "signals": [{"name": "s", "value": 1}, {"name": "t", "update": "s"}], "scales": [{"name": "x", "type": "linear", "zero": true}],
    "legends": [{"fill": "c"}, {"fill": "d", "shape": "e"}, {"shape": "e"}]})");
  const json filled = filled_spec(spec, json::parse(R"({"data": {"a": [1]}, "signals": {"s": 2},
    "scales": {"x": {"type": "log"}}, "unused": ["c", "e"]})"));
  CHECK(filled == json::parse(R"({"data": [{"name": "a", "values": [1]}, {"name": "b", "source": "a"}],
    "signals": [{"name": "s", "value": 2}, {"name": "t", "update": "s"}], "scales": [{"name": "x", "type": "log", "zero": true}],
    "legends": [{"fill": "d", "shape": "e"}]})"));
}

TEST_CASE("a metric that is 0 for one variant is drawn on a linear axis") {
  json data = {{"key", "workload.batch"}, {"of", "freekv"}, {"against", "full"}, {"always", "full"}};
  data["crossings"] = json::array();
  data["samples"] = {{{"x", 1}, {"of", side(5e6)}, {"against", side(0)}},
                     {{"x", 3}, {"of", side(9e6)}, {"against", side(0)}}};
  data["metric"] = "traffic.h2d_bytes";
  const json c = chart("break_even", data);
  CHECK(c["scales"]["y"]["type"] == "linear");
  CHECK(c["data"]["points"].size() == 4);
}

}  // namespace kvcast::tests
