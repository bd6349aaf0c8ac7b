// Numbers of services and their intervals on random runs: traffic, engines, policies, lengths and front ends.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.hpp"
#include "result/metric.hpp"
#include "serving/summary.hpp"
#include "study/study.hpp"

namespace kvcast::tests {
namespace {

class RandomRuns {
 public:
  explicit RandomRuns(std::uint64_t seed) : stream_(seed) {}

  std::string run() {
    const std::string lengths[] = {fmt::format("{}", between(64, 4000)),
                                   fmt::format("{{mean: {}, cv: {}}}", between(200, 3000), one_of({"0.5", "1", "2"})),
                                   fmt::format("{{low: {}, high: {}}}", between(20, 200), between(300, 5000))};
    const std::string rate = fmt::format("{:.3g}", std::pow(10, 3 * uniform() - 1));
    const std::string arrivals =
        one_of({"rate: " + rate, "rate: " + rate + ", process: gamma, cv: 2", "rate: all",
                fmt::format("concurrency: {}, think_time: {} ms", between(1, 40), between(0, 500))});
    const std::string rules =
        one_of({"", fmt::format("scheduler: {{max_num_seqs: {}}}\n", between(1, 64)),
                std::string("scheduler: {prefill: ") + one_of({"chunked", "whole", "alone"}) + "}\n"});
    return fmt::format(
        "model: llama-3.2-1b\nhardware: {}\npolicy: {}\nscore: none\ntrace: {{recipe: needle, layers: 1, steps: 2}}\n"
        "framework: {{name: {}, front_end_request: {} ms, client_time: {} ms}}\n{}"
        "traffic: {{{}, requests: {}, seed: {}, prompt_tokens: {}, output_tokens: {}, slo: {{ttft: {} ms, tpot: {} "
        "ms}}}}\n",
        one_of({"l40s", "rtx-4090"}),
        one_of({"full", "{name: snapkv, budget: 512}", "{name: quest, budget: 512}", "{name: freekv, budget: 512}"}),
        one_of({"vllm", "vllm-0.8", "sglang", "trtllm"}), one_of({"0", "3", "40"}), one_of({"0", "20"}), rules,
        arrivals, between(5, 120), between(1, 1000), lengths[between(0, 2)], between(1, 100), between(20, 5000),
        between(5, 100));
  }

 private:
  double uniform() { return stream_.uniform(next_++); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(stream_.below(next_++, static_cast<std::uint64_t>(high - low + 1)));
  }
  std::string one_of(const std::vector<std::string>& all) { return all[stream_.below(next_++, all.size())]; }

  Stream stream_;
  std::uint64_t next_ = 0;
};

double number(const result::Result& r, const std::string& path) {
  return result::value(r, *result::find_metric(path)).value_or(0);
}

TEST_CASE("intervals of a service contain its numbers, and parts add up") {
  RandomRuns random(7);
  int served = 0, wide = 0, saturated = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string text = random.run();
    INFO(text);
    const result::Result r = study::run_all({{config::parse_yaml(text, "test"), {}, {}}}, {}).front();
    REQUIRE(r.service);
    for (const result::Metric& metric : result::all_metrics()) {
      const auto value = result::value(r, metric);
      if (!metric.path.starts_with("serving.") || !value) continue;
      INFO(metric.path);
      CHECK((std::isfinite(*value) && *value >= 0));
      if (metric.unit == result::Unit::kShare) CHECK(*value <= 1 + 1e-9);
      const auto interval = result::interval(r, metric);
      if (!interval) continue;
      CHECK(std::isfinite(interval->high));
      CHECK((interval->low >= 0 && interval->low <= *value && *value <= interval->high));
      wide += interval->low < interval->high ? 1 : 0;
    }
    if (!r.service->served) continue;
    ++served;
    saturated += r.service->summary.state == serving::Trend::kSaturated ? 1 : 0;
    for (const std::string time : {"ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"}) {
      const std::string path = "serving." + time;
      CHECK((number(r, path + ".p50") <= number(r, path + ".p90") &&
             number(r, path + ".p90") <= number(r, path + ".p99")));
    }
    for (const std::string which : {"mean", "p99"}) {
      double sum = 0;
      for (const serving::TtftPart& part : serving::kTtftParts)
        sum += number(r, fmt::format("serving.ttft_parts.{}_s.{}", part.name, which));
      CHECK(sum == Approx(number(r, "serving.ttft_s." + which)));
    }
    CHECK(number(r, "serving.ttft_s.mean") <= number(r, "serving.e2e_s.mean") * (1 + 1e-9));
  }
  CHECK((served > 50 && wide > 1000 && saturated > 3));
}

}  // namespace
}  // namespace kvcast::tests
