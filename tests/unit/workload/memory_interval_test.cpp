// What of a run's memory is an estimate, by hand.
#include "workload/memory_interval.hpp"

#include <catch2/catch.hpp>

#include "lower/dense.hpp"

using namespace kvcast;
using nlohmann::json;

namespace {

workload::Experiment experiment() {
  workload::Experiment e;
  e.hbm = {100, 50, {{"weights", 20}, {"activations", 15}, {"attention scores", 5}, {"KV cache", 10}}};
  e.decode_hbm = {100, 31, {{"weights", 20}, {"KV cache", 10}, {"activations", 1}}};
  return e;
}

}  // namespace

TEST_CASE("activations and attention scores may be off, weights and caches are exact") {
  json record;
  workload::add_memory_intervals(record, experiment());
  const double spread = lower::kTemporarySpread;
  const json& intervals = record["intervals"];
  CHECK(intervals["memory.hbm_peak_bytes"][0].get<double>() == Approx(50 - spread * 20));
  CHECK(intervals["memory.hbm_peak_bytes"][1].get<double>() == Approx(50 + spread * 20));
  CHECK(intervals["memory.decode_hbm_peak_bytes"][1] == 31);  // a thirty-first does not count
  CHECK(record["origin"]["memory.hbm_peak_bytes"] == "assumed");
  CHECK(record["origin"]["memory.decode_hbm_peak_bytes"] == "exact");
  CHECK(record["origin"]["memory"] == "exact");
}

TEST_CASE("a record's peaks with more activations and with fewer") {
  const json entry = workload::shifted_memory(experiment());
  CHECK(entry["source"] == workload::kTemporaries);
  CHECK(entry["longer"]["memory"]["hbm_peak_bytes"].get<double>() == Approx(50 + lower::kTemporarySpread * 20));
  CHECK(entry["shorter"]["memory"]["decode_hbm_peak_bytes"].get<double>() == Approx(31 - lower::kTemporarySpread));
}

TEST_CASE("only their own source makes activations larger") {
  CHECK(workload::temporaries_when_off({workload::kTemporaries, 1}) == Approx(1 + lower::kTemporarySpread));
  CHECK(workload::temporaries_when_off({workload::kTemporaries, -1}) == Approx(1 - lower::kTemporarySpread));
  CHECK(workload::temporaries_when_off({"device memory", 1}) == 1);
  CHECK(workload::temporaries_when_off({}) == 1);
}
