#include <catch2/catch.hpp>

#include <algorithm>
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

TEST_CASE("a peak is as uncertain as its activations") {
  const Result r = small_result();
  // Activations are 20 of 50 GB, and ±40 % of 20 GB is ±8 GB; during decoding, 1 of 31 GB.
  CHECK(interval(r, metric("hbm")).value().high == Approx(58e9));
  CHECK(interval(r, metric("hbm")).value().low == Approx(42e9));
  CHECK(origin(r, metric("hbm")) == Origin::kAssumed);
  CHECK(interval(r, metric("decode_hbm")).value().high == Approx(31.4e9));
  CHECK(origin(r, metric("decode_hbm")) == Origin::kAssumed);
  Result certain = r;
  certain.experiment.decode_hbm.owners.pop_back();  // without activations
  CHECK(origin(certain, metric("decode_hbm")) == Origin::kExact);
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

// Four sequences: prompts of 1000 tokens take 2 s each, and each of the 100 steps after the first token 50 ms. The GPUs
// cost 3.6 an hour, a thousandth a second.
Result service() {
  Result r = small_result();
  r.subject.batch = 4, r.subject.prompt_tokens = 1000, r.subject.decode_tokens = 101;
  r.subject.settings.push_back({"price_per_hour", 3.6});
  std::ranges::sort(r.subject.settings, {}, &Setting::key);
  r.experiment.ttft_s = 8, r.experiment.first_ttft_s = 2;
  r.experiment.tpot_mean_s = 0.05, r.experiment.tokens_per_s = 80;
  r.experiment.effects.clear();
  return r;
}

TEST_CASE("a request in a full batch waits for the prompts of all and its own decode steps") {
  const Result r = service();
  CHECK(value(r, metric("request.latency_s")).value() == Approx(8 + 100 * 0.05));  // 13 s
  CHECK(value(r, metric("request.ttft_s")).value() == 2);
  CHECK(value(r, metric("request.tpot_s")).value() == Approx((13.0 - 2) / 100));
  CHECK(value(r, metric("request.requests_per_s")).value() == Approx(4 / 13.0));  // Little's law
  CHECK(value(r, metric("request.output_tokens_per_s")).value() == Approx(4 * 101 / 13.0));
  CHECK(value(r, metric("request.total_tokens_per_s")).value() == Approx(4 * 1101 / 13.0));
}

TEST_CASE("a request costs the time that it takes of the GPUs, prompt included") {
  const Result r = service();
  CHECK(value(r, metric("request.cost")).value() == Approx(13.0 / 4 * 1e-3));
  CHECK(value(r, metric("cost")).value() == Approx(13.0 / 4 * 1e-3 / 101 * 1e6));
  CHECK(value(r, metric("request.cost_per_million_tokens")).value() == Approx(13.0 / 4 * 1e-3 / 1101 * 1e6));
  // Input and output separately: 8 s for 4000 tokens, 50 ms for 4.
  CHECK(value(r, metric("prefill.cost_per_million_tokens")).value() == Approx(8e-3 / 4000 * 1e6));
  CHECK(value(r, metric("decode.cost_per_million_tokens")).value() == Approx(0.05e-3 / 4 * 1e6));
  // The two add up to the request: 1000 input tokens and 100 decode steps.
  CHECK(
      value(r, metric("request.cost")).value() ==
      Approx((1000 * value(r, metric("prefill_cost")).value() + 100 * value(r, metric("decode_cost")).value()) / 1e6));
  CHECK_FALSE(value(small_result(), metric("request.cost")).has_value());
}

TEST_CASE("a cost moves a request by the share of its phase") {
  Result r = service();
  Effect tensor{"tensor cores", {"gpu.flops"}, {}, {}};
  tensor.longer.prefill = 1.25, tensor.shorter.prefill = 0.8;  // 8 of 13 s
  r.experiment.effects = {tensor};
  CHECK(time_factor(r, metric("request.latency_s"), tensor.longer) == Approx((8 * 1.25 + 5) / 13));
  CHECK(time_factor(r, metric("request.requests_per_s"), tensor.longer) == Approx(13 / (8 * 1.25 + 5)));
  CHECK(interval(r, metric("request.latency_s"))->high == Approx(8 * 1.25 + 5));
  CHECK(interval(r, metric("request.cost"))->low == Approx((8 * 0.8 + 5) / 4 * 1e-3));
  // Three prompts of others stand between the tokens: 6 of 11 s.
  CHECK(interval(r, metric("request.tpot_s"))->high == Approx((6 * 1.25 + 5) / 100));
  CHECK(value(shifted(r, "tensor cores", Direction::kLonger), metric("request.tpot_s")).value() ==
        Approx((6 * 1.25 + 5) / 100));
  CHECK(prefill_share(r, metric("tpot")) == 0.0);
  CHECK(prefill_share(r, metric("ttft")) == 1.0);
  CHECK_FALSE(prefill_share(r, metric("hbm")).has_value());
}

TEST_CASE("one output token comes from the prefill alone") {
  Result r = service();
  r.subject.decode_tokens = 1;
  CHECK(value(r, metric("request.latency_s")).value() == 8);
  CHECK_FALSE(value(r, metric("request.tpot_s")).has_value());
}

TEST_CASE("a capacity is as uncertain as the machine's numbers say") {
  Result r = small_result();
  r.experiment.hbm.capacity_spread = 2e9, r.experiment.hbm.capacity_origin = Origin::kAssumed;
  CHECK(interval(r, metric("hbm_capacity"))->low == Approx(78e9));
  CHECK(origin(r, metric("hbm_capacity")) == Origin::kAssumed);
  CHECK(fit_of(r) == MemoryFit::kFits);
  r.borderline = true;
  CHECK(fit_name(fit_of(r)) == "borderline");
  r.borderline = false, r.status = Status::kOom;
  CHECK(fit_name(fit_of(r)) == "does not fit");
}

}  // namespace
}  // namespace kvcast::tests
