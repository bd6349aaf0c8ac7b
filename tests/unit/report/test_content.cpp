// From records to tables, series and first view.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "report/content.hpp"
#include "report/lookup.hpp"
#include "support/temporary_directory.hpp"

using kvcast::UserError;
using kvcast::report::collect;
using kvcast::report::Content;
using kvcast::report::Palette;
using kvcast::store::Record;
using kvcast::store::Status;
using kvcast::store::Store;
using nlohmann::json;

namespace {

const json kMetrics = json::parse(R"([
  {"field": "tps", "path": "decode.tokens_per_s"},
  {"field": "recall", "path": "accuracy.recall_mass_mean"}
])");

Palette palette() {
  return Palette(json::parse(R"({
    "policies": {"full": "grey"}, "cycles": {"policies": ["red", "blue"], "kinds": ["k"], "owners": ["o"]},
    "symbols": ["circle", "square"], "dashes": ["1,0", "4,2"]
  })"));
}

// Records in the order in which the report reads them.
class Sweep {
 public:
  Sweep() : store_(Store::open(dir_.path(), Store::Open::kCreate)) {}
  Record& add(const char* values, const char* config, const char* result = "{}", Status status = Status::kOk) {
    Record r;
    r.key = fmt::format("{:04}", records_.size());
    r.ordinal = static_cast<std::int64_t>(records_.size());
    r.values = json::parse(values);
    r.config = json::parse(config);
    r.result = json::parse(result);
    r.status = status;
    r.code_version = std::string("v1");
    r.created_at = fmt::format("2025-01-31T12:00:{:02}Z", records_.size());
    records_.push_back(r);
    return records_.back();
  }
  Content read() {
    for (const Record& r : records_) store_.put(r);
    return collect(store_, kMetrics, palette());
  }
  Store& store() { return store_; }

 private:
  kvcast::TemporaryDirectory dir_;
  Store store_;
  std::vector<Record> records_;
};

std::vector<std::string> texts(const kvcast::report::Table& table, const std::string& column) {
  std::vector<std::string> out;
  for (std::size_t r = 0; r < table.rows(); ++r) out.push_back(table.text(r, column));
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a path is followed through nested objects and through names with dots") {
  const json value = json::parse(R"({"a": {"b.c": {"d": 1}}, "a.b": {"x": "7"}, "list": [1]})");
  CHECK(kvcast::report::number_at(value, "a.b.c.d") == 1);
  CHECK(kvcast::report::number_at(value, "a.b.x") == 7);
  CHECK(kvcast::report::text_at(value, "a.b.x") == "7");
  CHECK(std::isnan(kvcast::report::number_at(value, "a.b.y")));
  CHECK(std::isnan(kvcast::report::number_at(value, "list")));
  CHECK(kvcast::report::find_path(json(3), "a") == nullptr);
  CHECK(std::isnan(kvcast::report::as_number("12 tokens")));
}

TEST_CASE("an experiment's setting, metrics, intervals, origins and memory are told apart") {
  Sweep sweep;
  sweep.add("{}", R"({"model": "m", "hardware": "h", "policy": {"name": "quest", "budget": "1024", "split_factor": 0.5},
                      "workload": {"prompt_tokens": 32768, "decode_tokens": 512, "batch": 4}})",
            R"({"decode": {"tokens_per_s": 41.5}, "intervals": {"decode.tokens_per_s": [30, 50]},
                "origin": {"decode": "datasheet", "decode.tokens_per_s": "assumed", "accuracy": "exact"},
                "origin_shares": {"decode": {"assumed": 0.25}}, "binding_resource": "hbm",
                "memory": {"hbm_owners": [{"owner": "weights", "bytes": 7}, {"owner": "none", "bytes": 0}],
                           "dram_owners": [{"owner": "pages", "bytes": 9}]},
                "breakdown": [{"kind": "gemm", "exposed_s": 0.5, "hidden_s": 0.25}]})");
  sweep.add(
      "{}", R"({"policy": "full"})",
      R"({"oom": {"pool": "hbm", "moment": "prefill", "requested_bytes": 30, "in_use_bytes": 20, "capacity_bytes": 40,
                        "owners": [{"owner": "weights", "bytes": 20}]},
                "memory": {"hbm_owners": [{"owner": "stale", "bytes": 5}]}})",
      Status::kOom);
  const Content content = sweep.read();
  const auto& e = content.experiments;
  CHECK(e.objects()[0] == json::parse(R"({"id": 0, "key": "0000", "status": "ok", "model": "m", "hardware": "h",
    "policy": "quest", "series": "quest", "split": "0.5", "split_value": 0.5, "context": 32768, "decode_tokens": 512,
    "batch": 4, "budget": 1024, "tps": 41.5, "tps_low": 30, "tps_high": 50, "origin_tps": "assumed",
    "origin_recall": "exact", "share_assumed": 0.25,
    "binding_resource": "hbm", "simulated_in": 0})"));
  CHECK(e.objects()[1] == json::parse(R"({"id": 1, "key": "0001", "status": "oom", "policy": "full", "series": "full",
    "oom_pool": "hbm", "oom_moment": "prefill", "oom_requested": 30, "oom_in_use": 20, "oom_capacity": 40,
    "simulated_in": 0})"));
  // Owners of nothing are left out; where an allocation failed, its owners replace a peak that was never reached.
  CHECK(content.owners.objects() == json::parse(R"([
    {"id": 0, "pool": "hbm", "owner": "weights", "bytes": 7, "color": "o", "owner_order": 0},
    {"id": 0, "pool": "dram", "owner": "pages", "bytes": 9, "color": "o", "owner_order": 1},
    {"id": 1, "pool": "hbm", "owner": "weights", "bytes": 20, "color": "o", "owner_order": 0},
    {"id": 1, "pool": "hbm", "owner": "does not fit", "bytes": 30, "color": "o", "owner_order": 2}])"));
  CHECK(content.breakdown.objects() ==
        json::parse(R"([{"id": 0, "kind": "gemm", "color": "k", "exposed_s": 0.5, "hidden_s": 0.25}])"));
  CHECK(content.sweep["counts"] == json::parse(R"({"ok": 1, "oom": 1, "failed": 0})"));
  CHECK(content.sweep["created"] == json::parse(R"(["2025-01-31T12:00:00Z", "2025-01-31T12:00:01Z"])"));
  CHECK(content.sweep["code_versions"] == json::parse(R"(["v1"])"));
}

TEST_CASE("a series is a policy in a variant: what a sweep changes besides the axes of the page") {
  Sweep sweep;
  // Budgets are an axis; the split factor of one row comes from its configuration, not from the sweep.
  sweep.add(R"({"policy.budget": "256"})", R"({"policy": {"name": "rocketkv", "split_factor": "adaptive"}})");
  sweep.add(R"({"policy.split_factor": "0.3"})", R"({"policy": {"name": "rocketkv", "split_factor": 0.3}})");
  sweep.add(R"({"policy.budget": "512"})", R"({"policy": {"name": "rocketkv", "split_factor": "adaptive"}})");
  // quest has no split factor, and full's seed is the same throughout: neither becomes a variant.
  sweep.add(R"({"policy.budget": "256"})", R"({"policy": {"name": "quest"}})");
  sweep.add(R"({"trace.seed": "1"})", R"({"policy": "full", "trace": {"seed": 1}})");
  // A switch that only one row has is a variant of that row.
  sweep.add(R"({"policy.speculation": "false"})", R"({"policy": {"name": "freekv"}})");
  sweep.add(R"({})", R"({"policy": {"name": "freekv"}})");
  sweep.add(R"({})", R"({"policy": {"name": "broken"}})", "{}", Status::kFailed);
  const Content content = sweep.read();
  CHECK(texts(content.experiments, "series") == Texts{"rocketkv, split_factor adaptive", "rocketkv, split_factor 0.3",
                                                      "rocketkv, split_factor adaptive", "quest", "full",
                                                      "freekv, speculation false", "freekv", "broken"});
  // One row a series, a policy's variants together; a policy that only failed has no line in any chart.
  CHECK(texts(content.series, "series") == Texts{"rocketkv, split_factor adaptive", "rocketkv, split_factor 0.3",
                                                 "quest", "full", "freekv, speculation false", "freekv"});
  // full has its own colour; the others take the cycle of two in order.
  CHECK(texts(content.series, "color") == Texts{"red", "red", "blue", "grey", "red", "red"});
  CHECK(texts(content.series, "symbol") == Texts{"circle", "circle", "square", "circle", "square", "square"});
  CHECK(texts(content.series, "dash") == Texts{"1,0", "4,2", "1,0", "1,0", "1,0", "4,2"});
  CHECK(content.defaults["hidden"] == json::parse(R"(["rocketkv, split_factor 0.3", "freekv"])"));
}

TEST_CASE("what results rest on is listed once, the weakest origin first") {
  Sweep sweep;
  const char* both =
      R"({"rests_on": [{"what": "bandwidth", "origin": "datasheet", "uncertainty": 0.1, "source": "sheet"},
                                      {"what": "bandwidth", "origin": "datasheet", "uncertainty": 0.1, "source": "sheet"},
                                      {"what": "floor", "origin": "assumed"}]})";
  sweep.add("{}", "{}", both);
  sweep.add("{}", "{}", both);
  sweep.add("{}", "{}", R"({"rests_on": [{"what": "odd", "origin": "hearsay"}]})");
  CHECK(sweep.read().rests_on == json::parse(R"([
    {"what": "odd", "origin": "hearsay", "source": "", "experiments": 1},
    {"what": "floor", "origin": "assumed", "source": "", "experiments": 2},
    {"what": "bandwidth", "origin": "datasheet", "uncertainty": 0.1, "source": "sheet", "experiments": 2}])"));
}

TEST_CASE("timelines start at zero, and one a model, device and series is kept") {
  Sweep sweep;
  const char* rows =
      R"({"timeline": [{"lane": "compute", "kind": "gemm", "label": "g", "layer": 1, "start_s": 5.5, "dur_s": 1},
                                      {"lane": "host", "kind": "launch", "start_s": 5.25, "dur_s": 0.5}]})";
  sweep.add("{}", R"({"hardware": "a", "policy": "quest"})", rows);
  sweep.add("{}", R"({"hardware": "a", "policy": "quest"})", rows);
  sweep.add("{}", R"({"hardware": "b", "policy": "quest"})", rows);
  sweep.add("{}", R"({"hardware": "b", "policy": "quest", "model": "other"})", rows);
  const Content content = sweep.read();
  CHECK(content.timeline.rows() == 6);
  CHECK(content.timeline.number(0, "start_s") == 0.25);
  CHECK(content.timeline.number(1, "start_s") == 0);
  CHECK(content.sweep["timelines"] == json::parse("[3, 4]"));
  CHECK(content.experiments.number(0, "timeline") == 1);
  CHECK(std::isnan(content.experiments.number(1, "timeline")));
}

TEST_CASE("the first view shows the longest context that half of the policies reach") {
  Sweep sweep;
  const auto add = [&](const char* policy, int context, int budget, Status status, const char* hardware = "a") {
    Record& r = sweep.add("{}", "{}", "{}", status);
    r.config = {{"hardware", hardware},
                {"policy", {{"name", policy}, {"budget", budget}}},
                {"workload", {{"prompt_tokens", context}}}};
    return &r;
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
  SECTION("of three devices the one with most experiments is shown, not three panels") {
    add("p", 16384, 256, Status::kOk, "b");
    add("p", 16384, 256, Status::kOk, "c");
    CHECK(sweep.read().defaults["hardware"] == "a");
  }
}

TEST_CASE("an empty store has nothing to prefer") {
  Sweep sweep;
  const Content content = sweep.read();
  CHECK(content.experiments.rows() == 0);
  CHECK(content.defaults ==
        json::parse(R"({"model": null, "hardware": null, "context": null, "batch": null, "budget": null,
                                            "hidden": []})"));
}

TEST_CASE("findings are read from the metadata, and damage is named") {
  Sweep sweep;
  sweep.store().set_metadata(kvcast::store::kMetaFindings,
                             R"([{"title": "t", "text": 3, "extra": 1}, {"detail": "d"}])");
  CHECK(sweep.read().findings == json::parse(R"([{"title": "t", "text": "3", "detail": ""},
                                                 {"title": "", "text": "", "detail": "d"}])"));
  sweep.store().set_metadata(kvcast::store::kMetaFindings, "[{");
  CHECK_THROWS_WITH(sweep.read(), Catch::Contains("results.sqlite") && Catch::Contains("findings"));
}
