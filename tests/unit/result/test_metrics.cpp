#include <catch2/catch.hpp>

#include <cmath>
#include <set>

#include "result/json.hpp"
#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace result;

const Metric& metric(const char* name) {
  const Metric* found = find_metric(name);
  REQUIRE(found != nullptr);
  return *found;
}

TEST_CASE("every row of the table is complete and unique") {
  std::set<std::string> names;
  for (const Metric& m : all_metrics()) {
    INFO(m.path);
    CHECK(names.insert(m.path).second);
    if (!m.alias.empty()) CHECK((m.alias == m.path || names.insert(m.alias).second));
    CHECK((m.field == nullptr) != (m.derived == nullptr));
    CHECK(!m.label.empty());
    REQUIRE(!m.definition.empty());
    CHECK(m.definition.back() == '.');
    CHECK(m.definition.find(". ") == std::string::npos);  // one sentence
    CHECK(find_metric(m.path) == &m);
  }
}

TEST_CASE("metrics are found by path and by alias") {
  const Result r = small_result();
  CHECK(&metric("tpot") == &metric("decode.tpot_s.mean"));
  CHECK(value(r, metric("tps")).value() == 200);
  CHECK(value(r, metric("exposed")).value() == Approx(0.004));
  CHECK(value(r, metric("hidden.copy_in")).value() == Approx(0.005));
  CHECK(find_metric("nonsense") == nullptr);
}

TEST_CASE("an interval combines independent sources as squares of logarithms") {
  const Result r = small_result();
  // Upwards ln 1.1 and ln 1.05, downwards ln 0.9 and ln 0.96.
  const double up = std::hypot(std::log(1.1), std::log(1.05)), down = std::hypot(std::log(0.9), std::log(0.96));
  const Interval step = interval(r, metric("tpot")).value();
  CHECK(step.low == Approx(0.010 * std::exp(-down)));
  CHECK(step.high == Approx(0.010 * std::exp(up)));
  const Interval rate = interval(r, metric("tps")).value();
  CHECK(rate.low == Approx(200 * std::exp(-up)));
  CHECK(rate.high == Approx(200 * std::exp(down)));
  CHECK(interval(r, metric("ttft")).value().high == Approx(2 * 1.02));
  CHECK_FALSE(interval(r, metric("h2d")).has_value());
}

TEST_CASE("a peak is uncertain only if activations are at least a twentieth of it") {
  const Result r = small_result();
  // Activations are 20 of 50 GB, and ±40 % of 20 GB is ±8 GB; during decoding, 1 of 31 GB is below a twentieth.
  CHECK(interval(r, metric("hbm")).value().high == Approx(58e9));
  CHECK(interval(r, metric("hbm")).value().low == Approx(42e9));
  CHECK(origin(r, metric("hbm")) == Origin::kAssumed);
  CHECK(interval(r, metric("decode_hbm")).value().high == Approx(31e9));
  CHECK(origin(r, metric("decode_hbm")) == Origin::kExact);
}

TEST_CASE("the origin of a time is the weakest one that accounts for a twentieth of it") {
  const Result r = small_result();
  CHECK(origin(r, metric("tpot")) == Origin::kFitted);  // 3 % of the step is assumed
  CHECK(origin(r, metric("ttft")) == Origin::kLiterature);
  CHECK(bottleneck(r.experiment.step) == "host link");
}

TEST_CASE("a twentieth of the time determines the origin of the whole, a smaller share does not") {
  const auto with_assumed = [](double seconds) {
    metrics::Attribution time;
    time.exposed[static_cast<std::size_t>(graph::Kind::kGemm)] = 100;
    time.origin[static_cast<std::size_t>(Origin::kMeasured)] = 100 - seconds;
    time.origin[static_cast<std::size_t>(Origin::kAssumed)] = seconds;
    return origin_of(time);
  };
  CHECK(with_assumed(5) == Origin::kAssumed);
  CHECK(with_assumed(4.9) == Origin::kMeasured);
  CHECK(origin_of(metrics::Attribution{}) == Origin::kExact);
}

TEST_CASE("an out-of-memory result has no times, and no memory peak, which would count only the allocations that fit") {
  Result r = small_result();
  r.status = Status::kOom;
  CHECK_FALSE(value(r, metric("tpot")).has_value());
  CHECK_FALSE(value(r, metric("exposed.gemm")).has_value());
  CHECK_FALSE(value(r, metric("hbm")).has_value());
  CHECK_FALSE(value(r, metric("decode_hbm")).has_value());
  CHECK(value(r, metric("hbm_capacity")).value() == r.experiment.hbm.capacity);
  CHECK(number_named(r, "fits").value() == 0);
}

TEST_CASE("formulas can refer to owners, settings and the batch") {
  const Result r = small_result();
  CHECK(number_named(r, "hbm_of.KV_cache").value() == 14e9);
  CHECK(number_named(r, "dram_of.low_rank_keys").value() == 3e9);
  CHECK(number_named(r, "hbm_of.index").value() == 0);
  CHECK(number_named(r, "config.policy.budget").value() == 1024);
  CHECK(number_named(r, "batch").value() == 2);
  CHECK_FALSE(number_named(r, "config.policy.name").has_value());
  CHECK_FALSE(number_named(r, "build").has_value());
  CHECK_FALSE(is_number_name("tpott"));
}

TEST_CASE("a shifted source changes the times that it affects") {
  const Result r = small_result();
  const Result slower = shifted(r, "an HBM benchmark", Direction::kLonger);
  CHECK(value(slower, metric("tpot")).value() == Approx(0.0105));
  CHECK(value(slower, metric("tps")).value() == Approx(200 / 1.05));
  CHECK(value(slower, metric("ttft")).value() == Approx(2.04));
  CHECK(value(slower, metric("hbm")).value() == 50e9);
  const Result more = shifted(r, kTemporaries, Direction::kLonger);
  CHECK(value(more, metric("hbm")).value() == Approx(58e9));
  CHECK(value(more, metric("tpot")).value() == Approx(0.010));
  CHECK(sources_of(r) == std::vector<std::string>{"a link benchmark", kTemporaries, "an HBM benchmark"});
}

TEST_CASE("an alternative replaces the result if memory is shifted") {
  Result r = small_result();
  auto smaller = std::make_shared<Result>(small_result());
  smaller->subject.batch = 1, smaller->experiment.tokens_per_s = 120;
  r.alternatives = {{"device memory", smaller, nullptr}};
  CHECK(number_shifted(r, "device memory", Direction::kLonger, "tps").value() == 120);
  CHECK(number_shifted(r, "device memory", Direction::kShorter, "tps").value() == 200);
}

TEST_CASE("an alternative that does not fit changes only whether the result fits") {
  Result r = small_result();
  auto misfit = std::make_shared<Result>(small_result());
  misfit->status = Status::kOom, misfit->experiment.hbm.peak = 79e9;
  r.alternatives = {{"memory", misfit, nullptr}};
  CHECK(number_shifted(r, "memory", Direction::kLonger, "fits").value() == 0);
  CHECK(number_shifted(r, "memory", Direction::kLonger, "tps").value() == 200);
  CHECK(number_shifted(r, "memory", Direction::kLonger, "hbm").value() == 50e9);
  CHECK(number_shifted(r, "memory", Direction::kShorter, "fits").value() == 1);
}

TEST_CASE("settings keep their types as text") {
  for (const SettingValue& v : {SettingValue(true), SettingValue(std::int64_t{4096}), SettingValue(0.8),
                                SettingValue(std::string("adaptive")), SettingValue(std::string("007"))}) {
    CHECK(setting_value(text_of(v)) == v);
  }
  CHECK(number_of(SettingValue(std::string("0.3"))).value() == 0.3);
  CHECK_FALSE(number_of(SettingValue(std::string("adaptive"))).has_value());
}

TEST_CASE("JSON has every number at its metric's path") {
  const Result r = small_result();
  const nlohmann::json out = to_json(r);
  for (const Metric& m : all_metrics()) {
    INFO(m.path);
    const nlohmann::json* at = &out;
    for (std::size_t begin = 0; at != nullptr && begin <= m.path.size();) {
      const std::size_t end = std::min(m.path.find('.', begin), m.path.size());
      const std::string key = m.path.substr(begin, end - begin);
      at = at->is_object() && at->contains(key) ? &(*at)[key] : nullptr;
      begin = end + 1;
    }
    const auto number = value(r, m);
    REQUIRE((at != nullptr) == number.has_value());
    if (number) CHECK(at->get<double>() == *number);
    if (number) CHECK(out["origin"].contains(m.path));
  }
  CHECK(out["config"]["policy"]["budget"] == 1024);
  CHECK(out["oom"].is_null());
  CHECK(out["sensitivities"][0]["keys"] == nlohmann::json::array({"link.h2d_bandwidth"}));
  CHECK(out["breakdown"].size() == 2);
  CHECK(out["binding_resource"] == "host link");
}

}  // namespace
}  // namespace kvcast::tests
