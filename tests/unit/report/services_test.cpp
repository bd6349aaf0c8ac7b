// Numbers that a report has of runs with traffic: loads, states, capacities, runs over time.
#include "report/services.hpp"

#include <catch2/catch.hpp>

namespace kvcast::tests {
namespace {

using report::ServiceTables;
using result::Result;
using result::Setting;

Result service_at(double rate, double within, serving::Trend state = serving::Trend::kStable) {
  Result r;
  r.status = result::Status::kOk;
  r.subject.policy = "full";
  r.subject.settings = {
      {"traffic.rate", rate}, {"traffic.requests", std::int64_t{100}}, {"traffic.slo.ttft", std::int64_t{2}}};
  serving::Summary& s = r.service.emplace().summary;
  s.slo_share = within, s.state = state;
  s.ttft_curve = {0.5, 1, 4};
  s.tpot_curve = {0.01, 0.02, 0.03};
  s.moments = {{0, 1, 0, 0.1, 0}, {1, 2, 3, 0.5, 1}};
  return r;
}

TEST_CASE("a load is the key that a sweep of a service raises") {
  const auto load = [](std::vector<Setting> settings) {
    result::Subject s;
    s.settings = std::move(settings);
    return report::load_of(s);
  };
  CHECK(load({{"traffic.rate", 2.5}})->value == 2.5);
  CHECK(load({{"traffic.rate", 2.5}})->unit == "requests/s");
  CHECK(load({{"traffic.concurrency", std::int64_t{32}}})->unit == "requests at a time");
  CHECK(load({{"traffic.speedup", 2.0}})->unit == "times the trace's rate");
  CHECK(!load({{"traffic.rate", std::string("all")}}));
  CHECK(!load({{"workload.batch", std::int64_t{2}}}));
}

TEST_CASE("the capacity is the largest load with 99 % of requests within the SLO, up to the next that fails") {
  ServiceTables tables;
  const auto add = [&](const char* line, double id, const Result& r) { tables.add(id, line, r); };
  // Between 1 and 2.
  add("between", 0, service_at(0.5, 1)), add("between", 1, service_at(1, 0.99)),
      add("between", 2, service_at(2, 0.989));
  add("none", 3, service_at(0.5, 0.98)), add("none", 4, service_at(1, 0.3, serving::Trend::kSaturated));
  add("all", 5, service_at(0.5, 1)), add("all", 6, service_at(4, 1));
  // A load that fails below one that passes does not end the range.
  add("gap", 7, service_at(1, 0.9)), add("gap", 8, service_at(2, 0.995)), add("gap", 9, service_at(4, 0.1));
  // A queue that grows leaves the SLO sooner or later.
  add("grows", 10, service_at(1, 1)), add("grows", 11, service_at(2, 1, serving::Trend::kSaturated));
  const nlohmann::json rows = tables.capacities().objects();
  REQUIRE(rows.size() == 5);
  CHECK(rows[0] == nlohmann::json::parse(
                       R"({"id": 0, "least": 0.5, "top": 2, "most": 1, "fails": 2, "load_unit": "requests/s"})"));
  CHECK(rows[1] ==
        nlohmann::json::parse(R"({"id": 3, "least": 0.5, "top": 1, "fails": 0.5, "load_unit": "requests/s"})"));
  CHECK(rows[2] == nlohmann::json::parse(R"({"id": 5, "least": 0.5, "top": 4, "most": 4, "load_unit": "requests/s"})"));
  CHECK(rows[3] ==
        nlohmann::json::parse(R"({"id": 7, "least": 1, "top": 4, "most": 2, "fails": 4, "load_unit": "requests/s"})"));
  CHECK(rows[4] ==
        nlohmann::json::parse(R"({"id": 10, "least": 1, "top": 2, "most": 1, "fails": 2, "load_unit": "requests/s"})"));
}

TEST_CASE("a load passes if it does with every seed, and not if it does not fit in memory") {
  ServiceTables seeds;
  seeds.add(0, "a", service_at(1, 1)), seeds.add(1, "a", service_at(2, 1)), seeds.add(2, "a", service_at(2, 0.98));
  CHECK(seeds.capacities().number(0, "most") == 1);
  CHECK(seeds.capacities().number(0, "fails") == 2);
  ServiceTables misfits;
  Result misfit = service_at(2, 1);
  misfit.service.reset(), misfit.status = result::Status::kOom;
  misfits.add(0, "a", service_at(1, 1)), misfits.add(1, "a", misfit);
  CHECK(misfits.capacities().number(0, "fails") == 2);
}

TEST_CASE("runs without an SLO have no capacity, but times and moments") {
  Result r = service_at(1, 1);
  r.subject.settings.pop_back();
  r.service->summary.slo_share.reset();
  ServiceTables tables;
  tables.add(3, "a", r);
  CHECK(tables.capacities().rows() == 0);
  REQUIRE(tables.curves.rows() == 3);
  CHECK(tables.curves.number(1, "id") == 3);
  CHECK(tables.curves.number(1, "share") == 0.5);
  CHECK(tables.curves.number(1, "ttft") == 1);
  CHECK(tables.curves.number(2, "tpot") == 0.03);
  REQUIRE(tables.moments.rows() == 2);
  CHECK(tables.moments.number(1, "waiting") == 3);
  CHECK(tables.moments.number(1, "preemptions") == 1);
}

TEST_CASE("an experiment's row has its load, its state and its SLO") {
  report::Table table;
  table.begin_row();
  report::set_service(table, service_at(2, 0.5, serving::Trend::kSaturated));
  CHECK(table.objects()[0] ==
        nlohmann::json::parse(R"({"load": 2, "load_unit": "requests/s", "state": "saturated", "slo_ttft": 2})"));
  table.begin_row();
  report::set_service(table, Result{});
  CHECK(table.objects()[1].empty());
}

}  // namespace
}  // namespace kvcast::tests
