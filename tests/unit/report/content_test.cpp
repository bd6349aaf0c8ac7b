// Tables, series and the initial view made from results.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>

#include "report/content.hpp"
#include "report/measures.hpp"
#include "support/small_result.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using kvcast::Origin;
using kvcast::report::collect;
using kvcast::report::Content;
using kvcast::report::Palette;
using kvcast::result::Result;
using kvcast::result::Setting;
using kvcast::result::Status;
using kvcast::store::Store;
using nlohmann::json;

namespace {

Palette palette() {
  return Palette(json::parse(R"({
    "policies": {"full": {"color": "grey", "symbol": "diamond"}, "rocketkv": {"color": "#ff0080", "symbol": "cross"}},
    "shades": [0, 0.5, -0.25], "cycles": {"policies": ["#0000ff", "#00ff00"], "kinds": ["k"], "owners": ["o"]},
    "symbols": ["circle", "square"], "dashes": ["1,0", "4,2"]
  })"));
}

// Results in the order in which the report reads them.
class Sweep {
 public:
  Sweep() : store_(Store::open(dir_.path(), Store::Open::kCreate)) {}
  // A result of a policy with settings, sorted by key.
  Result& add(const std::string& policy, std::vector<Setting> settings = {}, Status status = Status::kOk) {
    Result& r = results_.emplace_back();
    r.key = fmt::format("{:04}", results_.size() - 1);
    r.subject.policy = policy;
    r.subject.settings = std::move(settings);
    r.status = status;
    return r;
  }
  Content read() {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const auto ordinal = static_cast<std::int64_t>(i);
      store_.put({ordinal, "v1", fmt::format("2025-01-31T12:00:{:02}Z", i), results_[i]});
    }
    return collect({{"", &store_}}, palette());
  }
  Store& store() { return store_; }

 private:
  kvcast::TemporaryDirectory dir_;
  Store store_;
  std::deque<Result> results_;
};

std::vector<std::string> texts(const kvcast::report::Table& table, const std::string& column) {
  std::vector<std::string> out;
  for (std::size_t r = 0; r < table.rows(); ++r) out.push_back(table.text(r, column));
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("the page lists the metrics that have an alias, and no operation kinds") {
  const json list = kvcast::report::page_metrics_json();
  const auto latency = std::ranges::find(list, json("latency"), [](const json& m) { return m.at("field"); });
  REQUIRE(latency != list.end());
  CHECK(*latency == json::parse(R"({"field": "latency", "path": "request.latency_s", "label": "Latency of a request",
    "short": "latency", "unit": "s", "scale": 1.0, "format": ",.3r", "table": true})"));
  for (const json& metric : list) {
    const std::string field = metric["field"];
    CHECK(field.find('.') == std::string::npos);
    CHECK(metric["table"].get<bool>() != metric["short"].get<std::string>().empty());
  }
  CHECK(list.size() == kvcast::report::page_metrics().size());
}

TEST_CASE("an experiment's setting, metrics, intervals, origins and memory are columns") {
  Sweep sweep;
  Result& fits = sweep.add("quest");
  fits = small_result();
  fits.key = "0000";
  fits.subject.settings.push_back({"policy.split_factor", 0.5});
  std::sort(fits.subject.settings.begin(), fits.subject.settings.end(),
            [](const Setting& a, const Setting& b) { return a.key < b.key; });
  fits.experiment.hbm.owners.push_back({"none", 0});
  Result& misfit = sweep.add("full", {}, Status::kOom);
  misfit.experiment.oom = kvcast::result::OutOfMemory{"hbm", "prefill", 30, 20, 40, {{"weights", 20}}, ""};
  misfit.experiment.hbm.owners = {{"stale", 5}};
  const Content content = sweep.read();
  const auto& e = content.experiments;
  json first = e.objects()[0];
  const json expected = json::parse(R"({"id": 0, "key": "0000", "status": "ok", "fit": "fits", "model": "llama-3.1-8b",
    "hardware": "h200", "policy": "quest", "series": "quest", "split": "0.5", "split_value": 0.5, "context": 32768,
    "decode_tokens": 512, "batch": 2, "budget": 1024, "tps": 200, "origin_tps": "fitted", "tpot": 0.01,
    "hbm": 50000000000, "hbm_low": 42000000000, "hbm_high": 58000000000, "origin_hbm": "assumed", "recall": 0.9,
    "origin_recall": "assumed", "exposed": 0.004, "hidden": 0.005, "share_fitted": 0.97, "share_assumed": 0.03,
    "bottleneck": "host link", "simulated_in": 0})");
  for (const auto& [column, value] : expected.items()) {
    INFO(column);
    CHECK(first[column] == value);
  }
  CHECK(e.number(0, "tps_low") == Approx(200 * std::exp(-std::hypot(std::log(1.05), std::log(1.1)))));
  CHECK_FALSE(first.contains("predicted"));
  CHECK_FALSE(first.contains("error"));
  json second = e.objects()[1];
  const json of_misfit = json::parse(R"({"status": "oom", "fit": "does not fit", "policy": "full", "oom_pool": "hbm",
         "oom_moment": "prefill", "oom_requested": 30, "oom_in_use": 20, "oom_capacity": 40})");
  for (const auto& [column, value] : of_misfit.items()) {
    INFO(column);
    CHECK(second[column] == value);
  }
  for (const char* column : {"tps", "bottleneck", "context", "hardware", "oom_requested_for"}) {
    INFO(column);
    CHECK_FALSE(second.contains(column));
  }
  // Owners of no bytes are omitted; if an allocation failed, the owners at that time replace a peak that was never
  // reached.
  CHECK(content.owners.objects() == json::parse(R"([
    {"id": 0, "pool": "hbm", "owner": "weights", "bytes": 16000000000, "color": "o", "owner_order": 0},
    {"id": 0, "pool": "hbm", "owner": "activations", "bytes": 20000000000, "color": "o", "owner_order": 1},
    {"id": 0, "pool": "hbm", "owner": "KV cache", "bytes": 14000000000, "color": "o", "owner_order": 2},
    {"id": 0, "pool": "dram", "owner": "low-rank keys", "bytes": 3000000000, "color": "o", "owner_order": 3},
    {"id": 1, "pool": "hbm", "owner": "weights", "bytes": 20, "color": "o", "owner_order": 0},
    {"id": 1, "pool": "hbm", "owner": "does not fit", "bytes": 30, "color": "o", "owner_order": 4}])"));
  CHECK(content.breakdown.objects() == json::parse(R"([
    {"id": 0, "kind": "gemm", "color": "k", "exposed_s": 0.006, "hidden_s": 0},
    {"id": 0, "kind": "copy_in", "color": "k", "exposed_s": 0.004, "hidden_s": 0.005}])"));
  CHECK(content.sweep["counts"] == json::parse(R"({"ok": 1, "oom": 1, "failed": 0})"));
  CHECK(content.sweep["created"] == json::parse(R"(["2025-01-31T12:00:00Z", "2025-01-31T12:00:01Z"])"));
  CHECK(content.sweep["code_versions"] == json::parse(R"(["v1"])"));
}

TEST_CASE("a series is a policy in a variant: the swept keys other than the axes of the page") {
  Sweep sweep;
  // Budgets are an axis; one row has its split factor from its configuration, not from the sweep.
  const std::string adaptive = "adaptive", key = "policy.split_factor";
  sweep.add("rocketkv", {{key, adaptive}}).subject.swept = {{"policy.budget", "256"}};
  sweep.add("rocketkv", {{key, 0.3}}).subject.swept = {{key, "0.3"}};
  sweep.add("rocketkv", {{key, adaptive}}).subject.swept = {{"policy.budget", "512"}};
  // quest has no split factor, and full's seed is the same throughout: neither becomes a variant.
  sweep.add("quest").subject.swept = {{"policy.budget", "256"}};
  sweep.add("full", {{"trace.seed", std::int64_t{1}}}).subject.swept = {{"trace.seed", "1"}};
  // A switch that only one row sets makes that row a variant.
  sweep.add("freekv").subject.swept = {{"policy.speculation", "false"}};
  sweep.add("freekv");
  sweep.add("broken", {}, Status::kFailed);
  const Content content = sweep.read();
  CHECK(texts(content.experiments, "series") == Texts{"rocketkv, split_factor adaptive", "rocketkv, split_factor 0.3",
                                                      "rocketkv, split_factor adaptive", "quest", "full",
                                                      "freekv, speculation false", "freekv", "broken"});
  // One row per series, a policy's variants together; a policy whose experiments all failed has no line in any chart.
  CHECK(texts(content.series, "series") == Texts{"rocketkv, split_factor adaptive", "rocketkv, split_factor 0.3",
                                                 "quest", "full", "freekv, speculation false", "freekv"});
  // full and rocketkv have colours and symbols of their own; the others take the cycles in order. The second variant of
  // each is half way to white: (255 + 255) / 2, (0 + 255) / 2 and (128 + 255) / 2.
  CHECK(texts(content.series, "color") == Texts{"#ff0080", "#ff80c0", "#0000ff", "grey", "#00ff00", "#80ff80"});
  CHECK(texts(content.series, "symbol") == Texts{"cross", "cross", "circle", "diamond", "square", "square"});
  // Short labels differ: a single key is shown by its value alone, and a switch by a word.
  CHECK(texts(content.series, "label") ==
        Texts{"rocketkv, adaptive", "rocketkv, 0.3", "quest", "full", "freekv, no speculation", "freekv"});
  CHECK(texts(content.series, "dash") == Texts{"1,0", "4,2", "1,0", "1,0", "1,0", "4,2"});
  CHECK(content.defaults["hidden"] == json::parse(R"(["rocketkv, split_factor 0.3", "freekv"])"));
}

TEST_CASE("budgets solved by match: are shown as the requested cost and do not create variants") {
  Sweep sweep;
  const auto add = [&](const std::string& policy, std::optional<std::int64_t> solved, const char* cost,
                       Status status = Status::kOk) {
    std::vector<Setting> settings = {{"match.bytes_read", std::stod(cost)}, {"match.reached", 90.0}};
    if (solved) settings.push_back({"policy.budget", *solved});
    sweep.add(policy, settings, status).subject.swept = {{"match.bytes_read", cost}};
  };
  add("quest", 16, "100"), add("quest", 48, "200"), add("snapkv", 15, "100");
  add("snapkv", {}, "300", Status::kFailed), add("quest", {}, "300", Status::kFailed);
  add("dense", {}, "100"), add("dense", {}, "200");
  Content content = sweep.read();
  const auto numbers = [&](const char* column) {
    std::vector<double> list;
    for (std::size_t r = 0; r < content.experiments.rows(); ++r) list.push_back(content.experiments.number(r, column));
    return list;
  };
  std::vector<double> budgets = numbers("budget");
  CHECK((std::isnan(budgets[5]) && std::isnan(budgets[6])));  // a policy without a budget
  budgets.resize(5);
  CHECK(budgets == std::vector<double>{100, 200, 100, 300, 300});
  CHECK(numbers("solved_budget")[1] == 48);
  CHECK(texts(content.series, "series") == Texts{"quest", "snapkv", "dense"});
  CHECK(content.defaults["budget"] == 100);  // the only cost of both policies that did not fail
  CHECK(content.defaults["cost"] == "bytes read");
  // Costs of two quantities, or a cost and a budget, cannot share an axis.
  sweep.add("quest", {{"policy.budget", std::int64_t{32}}}).subject.swept = {{"policy.budget", "32"}};
  content = sweep.read();
  CHECK(content.defaults["cost"].is_null());
  CHECK(numbers("budget")[1] == 48);
}

TEST_CASE("the first view of several stores shows a variant of every policy for each store") {
  Sweep a, b;
  a.add("quest").subject.swept = {{"policy.window", "1"}};
  a.add("quest").subject.swept = {{"policy.window", "2"}};
  b.add("quest").subject.swept = {{"policy.window", "1"}};
  a.read(), b.read();
  const Content content = collect({{"a", &a.store()}, {"b", &b.store()}}, palette());
  CHECK(texts(content.series, "series") ==
        Texts{"quest, window 1, store a", "quest, window 2, store a", "quest, window 1, store b"});
  CHECK(content.defaults["hidden"] == json::parse(R"(["quest, window 2, store a"])"));
}

TEST_CASE("experiments that differ only in their seeds are replicas of one series") {
  Sweep sweep;
  for (const char* seed : {"1", "2"}) sweep.add("quest").subject.swept = {{"trace.seed", seed}};
  const Content content = sweep.read();
  CHECK(texts(content.series, "series") == Texts{"quest"});
  CHECK(texts(content.experiments, "replica") == Texts{"seed 1", "seed 2"});
}

TEST_CASE("numbers of the machines are listed with the experiments on them, the weakest origin first") {
  Sweep sweep;
  sweep.store().set_machine("h200", {{"bandwidth", 1.0, "bytes/s", Origin::kDatasheet, 0.1, "sheet"},
                                     {"floor", 2.0, "seconds", Origin::kAssumed, 0, ""}});
  sweep.store().set_machine("a100", {{"odd", {}, "", Origin::kExtrapolated, 0.5, "far"}});
  sweep.store().set_machine("other", {{"of another sweep", {}, "", Origin::kExtrapolated, 0.5, ""}});
  sweep.add("full").subject.hardware = "h200";
  sweep.add("quest").subject.hardware = "h200";
  sweep.add("full").subject.hardware = "a100";
  CHECK(sweep.read().origins == json::parse(R"([
    {"what": "a100: odd", "origin": "extrapolated", "uncertainty": 0.5, "source": "far", "experiments": 1},
    {"what": "h200: floor", "origin": "assumed", "uncertainty": 0.0, "source": "", "experiments": 2},
    {"what": "h200: bandwidth", "origin": "datasheet", "uncertainty": 0.1, "source": "sheet", "experiments": 2}])"));
}

TEST_CASE("timelines start at zero, and one is kept per model, device and series") {
  Sweep sweep;
  for (const auto& [hardware, model] : {std::pair("a", ""), {"a", ""}, {"b", ""}, {"b", "other"}}) {
    Result& r = sweep.add("quest");
    r.subject.hardware = hardware, r.subject.model = model;
    r.experiment.timeline = {{"compute", "gemm", "g", 1, 5.5, 1, {}, {}},
                             {"host", "launch", "", -1, 5.25, 0.5, {}, {}}};
  }
  const Content content = sweep.read();
  CHECK(content.timeline.rows() == 6);
  CHECK(content.timeline.number(0, "start_s") == 0.25);
  CHECK(content.timeline.number(1, "start_s") == 0);
  CHECK(content.timeline.number(0, "layer") == 1);
  CHECK(std::isnan(content.timeline.number(1, "layer")));
  CHECK(content.sweep["timelines"] == json::parse("[3, 4]"));
  CHECK(content.experiments.number(0, "timeline") == 1);
  CHECK(std::isnan(content.experiments.number(1, "timeline")));
}

TEST_CASE("the first view shows the longest context that half of the policies reach") {
  Sweep sweep;
  const auto add = [&](const char* policy, int context, int budget, Status status, const char* hardware = "a") {
    Result& r = sweep.add(policy, {{"policy.budget", std::int64_t{budget}}}, status);
    r.subject.hardware = hardware, r.subject.prompt_tokens = context;
  };
  for (const char* policy : {"p", "q", "r", "s"}) {
    add(policy, 16384, 256, Status::kOk);
    add(policy, 32768, 512, *policy <= 'q' ? Status::kOk : Status::kOom);
    add(policy, 65536, 1024, *policy == 'p' ? Status::kOk : Status::kOom);
  }
  SECTION("two of four fit at 32K, one at 64K") {
    const Content content = sweep.read();
    CHECK(content.defaults["context"] == 32768);
    CHECK(content.defaults["batch"].is_null());
    CHECK(content.defaults["hardware"].is_null());
    CHECK(content.defaults["budget"] == 512);  // the middle of three budgets with four experiments each
  }
  SECTION("the budget shown is that of most policies, however often one of them was run with another") {
    add("p", 16384, 1024, Status::kOk);
    add("p", 32768, 1024, Status::kOk);
    CHECK(sweep.read().defaults["budget"] == 512);
    add("t", 16384, 1024, Status::kOk);
    CHECK(sweep.read().defaults["budget"] == 1024);
  }
  SECTION("four devices get four panels, and of five only the one with most experiments is shown") {
    for (const char* device : {"b", "c", "d"}) add("p", 16384, 256, Status::kOk, device);
    CHECK(sweep.read().defaults["hardware"].is_null());
    add("p", 16384, 256, Status::kOk, "e");
    CHECK(sweep.read().defaults["hardware"] == "a");
  }
}

TEST_CASE("an empty store has no defaults") {
  Sweep sweep;
  const Content content = sweep.read();
  CHECK(content.experiments.rows() == 0);
  CHECK(content.defaults ==
        json::parse(R"({"model": null, "hardware": null, "context": null, "batch": null, "budget": null,
                                            "cost": null, "hidden": [], "accuracy_measure": "recall"})"));
}

TEST_CASE("findings are shown as stored, in order") {
  Sweep sweep;
  CHECK(sweep.read().findings == json::array());
  sweep.store().set_findings({{"t", "3", "", R"([{"place": "h100", "number": "3"}])"}, {"", "", "d"}});
  CHECK(sweep.read().findings ==
        json::parse(R"([{"title": "t", "text": "3", "detail": "", "places": [{"place": "h100", "number": "3"}]},
                        {"title": "", "text": "", "detail": "d", "places": []}])"));
  sweep.store().set_findings({{"t", "", "", "no JSON"}});
  CHECK_THROWS_WITH(sweep.read(), Catch::Contains("the finding \"t\" cannot be read"));
}

TEST_CASE("a comparison of stores has a series for each store, the changes, and each store's numbers of machines") {
  Sweep before, after;
  for (Sweep* sweep : {&before, &after}) {
    Result& r = sweep->add("quest", {{"policy.name", std::string("quest")}});
    r.subject.hardware = "h100";
    r.experiment.tokens_per_s = sweep == &before ? 100 : 300;
    sweep->store().set_machine("h100", {{"gpu.sms", 132, "", kvcast::Origin::kDatasheet, 0, "sheet"}});
  }
  before.read(), after.read();
  const Content c = collect({{"old", &before.store()}, {"new", &after.store()}}, palette());
  CHECK(texts(c.experiments, "store") == Texts{"old", "new"});
  CHECK(texts(c.series, "series") == Texts{"quest, store old", "quest, store new"});
  CHECK(c.sweep.at("name") == "new compared with old");
  CHECK(c.sweep.at("compared") == json({"old", "new"}));
  CHECK(c.sweep.at("counts").at("ok") == 2);
  CHECK(c.findings.empty());
  REQUIRE(c.origins.size() == 2);
  CHECK(c.origins.at(0).at("what") == "old, h100: gpu.sms");
  CHECK(c.origins.at(1).at("what") == "new, h100: gpu.sms");
  REQUIRE(c.answers.size() == 2);
  CHECK(c.answers.at(1).at("question") == "Decode throughput: what changed from old to new?");
  REQUIRE(c.changes.rows() == 1);
  CHECK(c.changes.text(0, "from") == "old");
  CHECK(c.changes.text(0, "metric") == "decode.tokens_per_s");
  CHECK(c.changes.number(0, "times") == 3);
  CHECK(c.changes.number(0, "better") == 1);
}

}  // namespace kvcast::tests
