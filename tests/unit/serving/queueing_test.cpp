// Results of queueing theory, and what they need: order, conservation of work and of blocks.
#include <catch2/catch.hpp>

#include <limits>
#include <numeric>

#include "support/serving.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

struct Estimate {
  double mean = 0, error = 0;
};

// Mean and its standard error by the means of 40 batches: waits of neighbours are correlated.
Estimate estimate(const std::vector<double>& values) {
  constexpr std::size_t kBatches = 40;
  const std::size_t size = values.size() / kBatches;
  std::vector<double> means;
  for (std::size_t i = 0; i < kBatches; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * size);
    means.push_back(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(size), 0.0) / static_cast<double>(size));
  }
  Estimate result;
  for (const double mean : means) result.mean += mean / kBatches;
  for (const double mean : means) result.error += (mean - result.mean) * (mean - result.mean);
  result.error = std::sqrt(result.error / (kBatches - 1.0) / kBatches);
  return result;
}

Rules one_server() {
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.max_num_seqs = 1;
  rules.max_num_batched_tokens = 1'000'000;
  rules.prefix_caching = false;
  rules.in_flight = 1;
  return rules;
}

// Waits in seconds, in the order of arrival.
std::vector<double> waits(traffic::RequestSource& source, LinearTimes times, const Rules& rules) {
  EventRecorder seen;
  serve(source, times, rules, full_cache(rules.block), seen);
  std::vector<double> all(seen.outcomes.size());
  for (const Departure& one : seen.outcomes) {
    all[static_cast<std::size_t>(one.request.id)] = to_seconds(one.scheduled - one.request.arrival);
  }
  return all;
}

PoissonRequests steady_load(std::int64_t count, double rate, std::uint64_t seed) {
  const Stream lengths(seed + 1);
  return {rate, count, seed, [lengths](std::uint64_t i) {
            return std::pair<std::int64_t, std::int64_t>(20 + lengths.below(2 * i, 400),
                                                         1 + lengths.below(2 * i + 1, 99));
          }};
}

LinearTimes engine_times() {
  LinearTimes times;
  times.base = 5'000'000'000;  // 5 ms
  times.read = 50'000'000;
  times.sequence = 20'000'000;
  times.context = 10'000;
  return times;
}

}  // namespace

TEST_CASE("one request at a time, of equal times: waits as in M/D/1") {
  LinearTimes times;
  times.base = 90'000'000'000;  // 90 ms
  const double service = 0.09;
  for (const double load : {0.3, 0.6, 0.8}) {
    PoissonRequests source(load / service, 40'000, 11, [](std::uint64_t) { return std::pair(1, 1); });
    const Estimate wait = estimate(waits(source, times, one_server()));
    INFO("load " << load << ", wait " << wait.mean << " +- " << wait.error);
    CHECK(std::abs(wait.mean - load * service / (2 * (1 - load))) < 4 * wait.error);
    CHECK(wait.error < 0.05 * wait.mean);
  }
}

TEST_CASE("one request at a time, of exponential lengths: waits as in M/M/1") {
  LinearTimes times;
  times.base = 0;
  times.read = 10'000'000;  // 10 us a token, 10,000 tokens in the mean: 100 ms
  const double service = 0.1;
  const Stream lengths(5);
  for (const double load : {0.3, 0.6, 0.8}) {
    PoissonRequests source(load / service, 40'000, 12, [&](std::uint64_t i) {
      return std::pair<std::int64_t, std::int64_t>(std::ceil(-1e4 * std::log1p(-lengths.uniform(i))) + 1, 1);
    });
    const Estimate wait = estimate(waits(source, times, one_server()));
    INFO("load " << load << ", wait " << wait.mean << " +- " << wait.error);
    CHECK(std::abs(wait.mean - load * service / (1 - load)) < 4 * wait.error);
    CHECK(wait.error < 0.1 * wait.mean);
  }
}

TEST_CASE("Little's law: the mean number that run is the rate times the mean time for which they run") {
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.in_flight = 1;
  rules.max_num_seqs = 24;
  PoissonRequests source = steady_load(5000, 12, 3);
  LinearTimes times = engine_times();
  EventRecorder seen;
  serve(source, times, rules, full_cache(16), seen);
  // Without preemption both sides are the same sum, exactly.
  std::int64_t running = 0, served = 0;
  for (const Passes& run : seen.runs) running += run.running * run.time.sum(run.count);
  for (const Departure& one : seen.outcomes) {
    CHECK(one.preemptions == 0);
    served += one.last_token - one.scheduled;
  }
  CHECK(running == served);
}

TEST_CASE("requests are scheduled first in the order of their arrival") {
  for (const Engine engine : {Engine::kVllmV1, Engine::kVllmV0, Engine::kSglang, Engine::kTrtllm, Engine::kStatic}) {
    double last_mean = std::numeric_limits<double>::infinity();
    for (const std::int64_t blocks : {60, 1000}) {
      Rules rules = Rules::of(engine);
      rules.block = 16;
      rules.blocks = blocks;
      rules.max_num_seqs = 20;
      rules.max_num_batched_tokens = 512;
      PoissonRequests source = steady_load(600, 14, 4);
      LinearTimes times = engine_times();
      EventRecorder seen;
      serve(source, times, rules, full_cache(16), seen);
      std::vector<Picoseconds> scheduled(600);
      for (const Departure& one : seen.outcomes) scheduled[static_cast<std::size_t>(one.request.id)] = one.scheduled;
      INFO(config::scheduler_name(engine) << ", " << blocks << " blocks");
      CHECK(std::ranges::is_sorted(scheduled));
      double mean = 0;
      for (const Departure& one : seen.outcomes) mean += to_seconds(one.last_token - one.request.arrival) / 600;
      CHECK(mean < last_mean);  // no engine gains from a smaller pool
      last_mean = mean;
      if (blocks == 1000) {
        CHECK(std::ranges::none_of(seen.outcomes, [](const Departure& one) { return one.preemptions > 0; }));
      }
    }
  }
}

// Every pass takes one unit of time.
TEST_CASE("saturation: batches by hand, and between their bounds an engine that refills slots") {
  constexpr std::int64_t kRequests = 600, kSlots = 64, kPrompt = 100, kOutputs = 50;
  const auto makespan = [&](Engine engine) {
    Rules rules = Rules::of(engine);
    rules.max_num_seqs = kSlots;
    rules.max_num_batched_tokens = 2000;
    rules.in_flight = 1;
    ListedRequests source(std::vector<traffic::Request>(kRequests, request(0, kPrompt, kOutputs)));
    LinearTimes times;
    times.base = 1;
    EventRecorder seen;
    serve(source, times, rules, full_cache(rules.block), seen);
    return seen.outcomes.back().last_token;
  };
  // 9 batches of 64 are read in 4 passes of 20 prompts, the last of 24 in 2; each then decodes 49 times.
  CHECK(makespan(Engine::kStatic) == 9 * (4 + 49) + 2 + 49);
  // Slots are in use for 50 passes a request at least; to start, 64 prompts take 3 passes more than one.
  CHECK(makespan(Engine::kVllmV1) >= kRequests * kOutputs / kSlots);
  CHECK(makespan(Engine::kVllmV1) <= makespan(Engine::kStatic));
  CHECK(makespan(Engine::kVllmV1) >= 10 * kOutputs);  // 600 requests in 64 slots: some slot serves 10
}

TEST_CASE("two passes in flight: an arrival waits for the pass that is composed already") {
  // Unit passes. A decodes from 0 on; B arrives in the pass from 5 to 6, which has its successor: it is read from 7 on.
  for (const std::int64_t in_flight : {1, 2}) {
    Rules rules = Rules::of(Engine::kVllmV1);
    rules.in_flight = in_flight;
    ListedRequests source({request(0, 4, 30), request(5500, 4, 1)});
    LinearTimes times;
    EventRecorder seen;
    serve(source, times, rules, full_cache(16), seen);
    CHECK(seen.of(1).scheduled == (in_flight == 1 ? 6000 : 7000));
  }
}

TEST_CASE("a request that can never fit is rejected at the head of the queue") {
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.blocks = 10;
  rules.max_context = 155;
  rules.in_flight = 1;
  // 160 tokens at most are cached of 161; contexts end at 155.
  ListedRequests source({request(0, 100, 50), request(0, 161, 1), request(0, 100, 56), request(0, 100, 55)});
  LinearTimes times;
  EventRecorder seen;
  serve(source, times, rules, full_cache(16), seen);
  CHECK_FALSE(seen.of(0).rejected);
  CHECK(seen.of(1).rejected);
  CHECK(seen.of(2).rejected);
  CHECK_FALSE(seen.of(3).rejected);
  CHECK(seen.of(1).last_token == 0);  // at the head as soon as the first is admitted
  CHECK(source.count_ended() == 4);
}

TEST_CASE("a queue that is to stop, stops") {
  std::stop_source stop;
  stop.request_stop();
  ListedRequests source({request(0, 4, 4)});
  LinearTimes times;
  EventRecorder seen;
  CHECK_THROWS_AS(serve(source, times, Rules{}, full_cache(16), seen, stop.get_token()), Cancelled);
}

}  // namespace kvcast::tests
