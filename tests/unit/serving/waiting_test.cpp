// The queue over time, worked out by hand.
#include <catch2/catch.hpp>

#include "serving/summary.hpp"
#include "support/serving.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

constexpr Picoseconds kMs = 1'000'000'000;

Rules rules_of(std::int64_t sequences) {
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.max_num_seqs = sequences;
  rules.max_num_batched_tokens = 1000;
  rules.prefix_caching = false;
  rules.in_flight = 1;
  return rules;
}

Summary summary_of(ListedRequests source, const LinearTimes& times, const Rules& rules) {
  LinearTimes own = times;
  SummaryRecorder recorder({});
  serve(source, own, rules, full_cache(rules.block), recorder);
  return recorder.summary();
}

TEST_CASE("requests wait from their arrival on, also during a run that they do not change") {
  // Passes of 104 ms, one request at a time with 5 tokens each: 0 to 0.52 s, to 1.04 s and to 1.56 s. The second comes
  // at 0.14 s, is queued from the pass at 0.208 s on, and waits 0.38 s; the third comes at 0.26 s and waits 0.78 s.
  LinearTimes times;
  times.base = 104 * kMs;
  const Summary s = summary_of(
      ListedRequests({request(0, 10, 5), request(140 * kMs, 10, 5), request(260 * kMs, 10, 5)}), times, rules_of(1));
  CHECK(s.duration_s == Approx(1.56));
  CHECK(s.waiting_mean == Approx((0.38 + 0.78) / 1.56));
  CHECK(s.waiting_max == 2);
  REQUIRE(s.moments.size() > 25);
  for (const Moment& moment : s.moments) {
    INFO("at " << moment.at << " s");
    const double at = moment.at;
    CHECK(moment.waiting == (at < 0.208 || at > 1.04 ? 0 : at < 0.26 || at > 0.52 ? 1 : 2));
  }
}

TEST_CASE("a request that loses its memory waits again") {
  // 8 blocks of 16 tokens hold two requests of 48 until both have more than 64.
  Rules rules = rules_of(2);
  rules.block = 16, rules.blocks = 8, rules.watermark = 0;
  LinearTimes times;
  times.base = kMs;
  const std::vector<traffic::Request> both = {request(0, 48, 40), request(0, 48, 40)};
  EventRecorder seen;
  ListedRequests source(both);
  LinearTimes own = times;
  serve(source, own, rules, full_cache(rules.block), seen);
  REQUIRE(seen.outcomes.size() == 2);
  const Departure &first = seen.outcomes[0], &second = seen.outcomes[1];
  CHECK(first.waited == 0);
  CHECK(second.preemptions == 1);
  // Each of its tokens takes a pass of 1 ms, the re-read one included; the rest of its time it waits.
  CHECK(second.waited == second.last_token - 40 * kMs);
  CHECK(second.waited > 20 * kMs);
  const Summary s = summary_of(ListedRequests(both), times, rules);
  CHECK(s.waiting_mean == Approx(to_seconds(second.waited) / to_seconds(second.last_token)));
}

TEST_CASE("an engine that idles has no queue that grows, even if later requests wait longer") {
  // A request each 100 ms takes 10 ms; two of the second third and eight of the last come with another.
  std::vector<traffic::Request> requests;
  for (int i = 0; i < 60; ++i) {
    requests.push_back(request(i * 100 * kMs, 10, 1));
    const bool with_another = (i >= 20 && i < 22) || i >= 52;
    if (with_another) requests.push_back(request(i * 100 * kMs, 10, 1));
  }
  LinearTimes times;
  times.base = 10 * kMs;
  CHECK(summary_of(ListedRequests(requests), times, rules_of(1)).state == Trend::kStable);
  times.base = 120 * kMs;  // more than arrive
  CHECK(summary_of(ListedRequests(requests), times, rules_of(1)).state == Trend::kSaturated);
}

TEST_CASE("a service whose decodes crowd each other is saturated though nobody waits") {
  // A request each 100 ms with 10 tokens. Passes of 10 ms and 1 ms a sequence are done with it in time; with 20 ms a
  // sequence, 180 ms a request, there are more and more, and each has its tokens later and later.
  std::vector<traffic::Request> requests;
  for (int i = 0; i < 200; ++i) requests.push_back(request(i * 100 * kMs, 10, 10));
  LinearTimes times;
  times.base = 10 * kMs, times.sequence = kMs;
  CHECK(summary_of(ListedRequests(requests), times, rules_of(1000)).state == Trend::kStable);
  times.sequence = 20 * kMs;
  const Summary crowded = summary_of(ListedRequests(requests), times, rules_of(1000));
  CHECK(crowded.queue.mean < 0.1 * crowded.e2e.mean);
  CHECK(crowded.requests_per_s < 10);
  CHECK(crowded.state == Trend::kSaturated);
}

}  // namespace
}  // namespace kvcast::tests
