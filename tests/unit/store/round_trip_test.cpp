// A stored result gives the same answers as the one in memory.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "full_result.hpp"
#include "result/json.hpp"
#include "result/metric.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

using result::Direction;
using result::Metric;
using result::Result;
using store::Store;

Result stored_and_read(const Result& result) {
  const TemporaryDirectory dir;
  Store::open(dir.path(), Store::Open::kCreate).put(7, result, "v1");
  const auto stored = Store::open(dir.path(), Store::Open::kExisting).get(result.key);
  REQUIRE(stored.has_value());
  CHECK(stored->ordinal == 7);
  CHECK(stored->code_version == "v1");
  CHECK(stored->created_at.size() == 20);  // 2025-01-31T12:00:00Z
  return stored->result;
}

void require_same_numbers(const Result& a, const Result& b) {
  for (const Metric& metric : result::all_metrics()) {
    INFO(metric.path);
    CHECK(value(a, metric) == value(b, metric));
    CHECK(origin(a, metric) == origin(b, metric));
    const auto x = interval(a, metric), y = interval(b, metric);
    REQUIRE(x.has_value() == y.has_value());
    if (x) CHECK((x->low == y->low && x->high == y->high));
  }
}

void require_same(const Result& a, const Result& b) {
  require_same_numbers(a, b);
  CHECK(a.key == b.key);
  CHECK(a.status == b.status);
  CHECK(a.error == b.error);
  CHECK(a.wall_s == b.wall_s);
  CHECK(a.subject.settings == b.subject.settings);
  CHECK(a.subject.swept == b.subject.swept);
  using S = result::Subject;
  for (const auto member : {&S::name, &S::model, &S::hardware, &S::host, &S::policy, &S::trace}) {
    CHECK(a.subject.*member == b.subject.*member);
  }
  CHECK(a.subject.category == b.subject.category);
  for (const auto member : {&S::prompt_tokens, &S::decode_tokens, &S::batch})
    CHECK(a.subject.*member == b.subject.*member);
  // Texts that are not UTF-8 are replaced in both in the same way: their bytes are compared below.
  CHECK(result::to_json(a).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) ==
        result::to_json(b).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  CHECK(sources_of(a) == sources_of(b));
  for (const std::string& source : sources_of(a)) {
    INFO(source);
    for (const Direction d : {Direction::kLonger, Direction::kShorter}) {
      require_same_numbers(shifted(a, source, d), shifted(b, source, d));
    }
  }
}

TEST_CASE("a result is read back in full, whether it ran, did not fit, failed or is an index build") {
  for (const Result& result : {small_result(), full_result(), misfit_result(), failed_result(), build_result(), [] {
                                 Result empty;
                                 empty.key = "empty";
                                 return empty;
                               }()}) {
    INFO(result.key);
    require_same(result, stored_and_read(result));
  }
}

TEST_CASE("members that appear in no metric, JSON or shift are also read back") {
  const Result in = full_result(), out = stored_and_read(in);
  CHECK(out.experiment.decode_hbm.capacity == 79e9);
  CHECK(out.experiment.step.bound == in.experiment.step.bound);
  CHECK(out.experiment.step.path == in.experiment.step.path);
  REQUIRE(out.experiment.by_trace.size() == in.experiment.by_trace.size());
  for (std::size_t i = 0; i < in.experiment.by_trace.size(); ++i) {
    CHECK(out.experiment.by_trace[i].step_s == in.experiment.by_trace[i].step_s);
    CHECK(out.experiment.by_trace[i].prefill_spread == in.experiment.by_trace[i].prefill_spread);
  }
  CHECK(out.experiment.prefill.uncertain == in.experiment.prefill.uncertain);
  CHECK(out.experiment.step.exposed == in.experiment.step.exposed);  // including markers
  CHECK(out.experiment.engine_ops == 1000);
  CHECK(out.experiment.engine_events == 2000);
  CHECK(out.experiment.timeline[0].label == "label \xc3\x28");
  CHECK(out.experiment.effects[0].longer.step_parts->hidden == in.experiment.effects[0].longer.step_parts->hidden);
  CHECK(out.experiment.effects[2].source == "trace");
  CHECK(out.accuracy.task->source == "fitted to three papers");
  CHECK(out.accuracy.task->recall_min == 0.5);
  REQUIRE(out.benchmark);
  CHECK(out.benchmark->context == 16384);
  CHECK(out.benchmark->share_of_full == 0.875);
  CHECK(out.benchmark->interval.low == 0.75);
  REQUIRE(out.benchmark->tasks.size() == 2);
  CHECK(out.benchmark->tasks[0].task == "vt");
  CHECK(out.benchmark->tasks[0].share_of_full == 0.5);
  CHECK(out.benchmark->origin == "26 replays");
  REQUIRE(out.alternatives.size() == 1);
  CHECK(out.alternatives[0].longer->subject.batch == 1);
  CHECK(out.alternatives[0].shorter == nullptr);
  CHECK(stored_and_read(build_result()).build->time.idle == build_result().build->time.idle);
}

TEST_CASE("numbers that are not finite are read back") {
  Result in = small_result();
  in.experiment.tpot_p99_s = std::numeric_limits<double>::quiet_NaN();
  in.experiment.ttft_s = std::numeric_limits<double>::infinity();
  in.experiment.effects[0].longer.step = -std::numeric_limits<double>::infinity();
  in.experiment.effects[0].shorter.prefill = std::numeric_limits<double>::quiet_NaN();
  const Result out = stored_and_read(in);
  CHECK(std::isnan(out.experiment.tpot_p99_s));
  CHECK(out.experiment.ttft_s == in.experiment.ttft_s);
  CHECK(out.experiment.effects[0].longer.step == in.experiment.effects[0].longer.step);
  CHECK(std::isnan(out.experiment.effects[0].shorter.prefill));
}

TEST_CASE("metrics and settings are columns of their own, and the view has short names") {
  const TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  store.put(0, small_result(), "v1");
  store.put(1, misfit_result(), "v1");
  store::Database database(store.path(), false, 1000);
  const auto text = [&](const char* sql) { return database.query_text(sql); };
  CHECK(text("SELECT \"decode.tokens_per_s\" FROM experiments WHERE status = 'ok'") == "200.0");
  CHECK(text("SELECT \"decode.tpot_s.mean.origin\" FROM experiments WHERE status = 'ok'") == "fitted");
  CHECK(text("SELECT \"memory.hbm_peak_bytes.high\" FROM experiments WHERE status = 'ok'") == "58000000000.0");
  CHECK(text("SELECT typeof(\"config.policy.tau\") || typeof(\"config.policy.budget\") FROM experiments") ==
        "realinteger");
  CHECK(text("SELECT count(*) FROM experiments WHERE \"decode.tokens_per_s\" IS NULL") == "1");
  CHECK(text("SELECT policy || budget || context || tps || bottleneck FROM runs WHERE batch = 2") ==
        "quest102432768200.0host link");
  CHECK(text("SELECT oom_pool || oom_requested_bytes FROM runs WHERE status = 'oom'") == "hbm30000000000.0");
  store.show({"misfit"});
  CHECK(text("SELECT count(*) FROM runs") == "1");
}

// Reading a row that `sql` corrupted reports the file, the row and a part of the reason.
void require_damaged(const Result& result, const char* sql, const char* reason) {
  INFO(sql);
  const TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  store.put(0, result, "v1");
  store::Database(store.path(), false, 1000).execute(sql);
  for (const std::string& part : {store.path(), "row " + result.key + " is damaged", std::string(reason)}) {
    CHECK_THROWS_WITH(store.get(result.key), Catch::Contains(part));
    CHECK_THROWS_WITH(store.for_each([](const store::Stored&) {}), Catch::Contains(part));
  }
}

TEST_CASE("rows corrupted by another program are rejected with file, row and reason") {
  const auto set = [](const char* assignment) { return std::string("UPDATE experiments SET ") + assignment; };
  const auto parts = [&](const char* change) { return set("parts = ") + change; };
  const Result r = full_result();
  require_damaged(r, set("\"decode.tokens_per_s\" = NULL").c_str(), "decode.tokens_per_s has no value");
  require_damaged(r, set("\"decode.tokens_per_s\" = 'fast'").c_str(), "another type");
  require_damaged(r, set("\"build.seconds\" = 1").c_str(), "build.seconds has a value");
  require_damaged(r, set("batch = 'two'").c_str(), "batch");
  require_damaged(r, set("ordinal = 'x'").c_str(), "variant");
  require_damaged(r, set("\"config.number\" = x'00'").c_str(), "config.number");
  require_damaged(r, set("model = NULL").c_str(), "model");
  require_damaged(misfit_result(), set("\"decode.tpot_s.p50\" = 1").c_str(), "decode.tpot_s.p50 has a value");
  require_damaged(r, set("status = 'fine'").c_str(), "status");
  require_damaged(r, set("parts = NULL").c_str(), "parts");
  require_damaged(r, parts("substr(parts, 1, 100)").c_str(), "parse error");
  // A flipped bit may leave a byte that is not UTF-8.
  require_damaged(r, parts("replace(parts, '\"decode\"', cast(x'22b56422' AS TEXT))").c_str(), "last read: '\"\\xb5'");
  require_damaged(r, parts("'[]'").c_str(), "expected an object");
  require_damaged(r, parts("json_remove(parts, '$.decode')").c_str(), "\"decode\" is missing");
  require_damaged(r, parts("json_remove(parts, '$.effects[0].source')").c_str(), "\"source\" is missing");
  require_damaged(r, parts("json_set(parts, '$.colour', 1)").c_str(), "\"colour\" is unknown");
  require_damaged(r, parts("json_set(parts, '$.decode.bound.gravity', 1)").c_str(), "unknown name");
  // Stores keep the spelling of older stores.
  require_damaged(r, parts("json_set(parts, '$.decode.bound.\"HBM bandwidth\"', 1)").c_str(), "unknown name");
  require_damaged(r, parts("json_set(parts, '$.accuracy_origin', 'hearsay')").c_str(), "hearsay");
  require_damaged(r, parts("json_set(parts, '$.hbm_owners[0].bytes', 'many')").c_str(), "expected a number");
  require_damaged(r, parts("json_set(parts, '$.task.known', 3)").c_str(), "expected true or false");
  require_damaged(r, parts("json_set(parts, '$.task.steps', 1.5)").c_str(), "expected an integer");
  require_damaged(r, parts("json_set(parts, '$.swept[0]', json('[\"a\"]'))").c_str(), "expected a list");
  require_damaged(r, parts("json_set(parts, '$.not_numbers', json('[\"decode.speed\"]'))").c_str(), "decode.speed");
  require_damaged(r, parts("json_set(parts, '$.timeline[0].label.hex', 'zz')").c_str(), "expected bytes");
  require_damaged(r, parts("json_set(parts, '$.alternatives[0].longer.batch', 'x')").c_str(), "batch");
}

TEST_CASE("a store that lacks a metric, or has no room for another setting, is rejected") {
  const TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  {
    Result wide = small_result();
    wide.subject.settings.clear();
    for (int i = 0; i < 2000; ++i) wide.subject.settings.push_back({fmt::format("key_{:04}", i), std::int64_t{i}});
    CHECK_THROWS_WITH(store.put(0, wide, "v1"),
                      Catch::Contains(store.path()) && Catch::Contains("columns") && Catch::Contains("config.key_"));
    CHECK_FALSE(store.get(wide.key).has_value());
    CHECK(store.put(0, small_result(), "v1"));  // the store still works, and has none of the 2000 columns
  }
  store::Database(store.path(), false, 1000)
      .execute("DROP VIEW runs; ALTER TABLE experiments RENAME COLUMN \"decode.idle_s\" TO idle");
  CHECK_THROWS_WITH(Store::open(dir.path(), Store::Open::kExisting),
                    Catch::Contains(store.path()) && Catch::Contains("no column \"decode.idle_s\""));
}

}  // namespace
}  // namespace kvcast::tests
