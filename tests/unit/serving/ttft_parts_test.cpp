// The parts of times to first tokens: by hand, and against the passes that an observer sees.

#include <catch2/catch.hpp>
#include <cmath>

#include "random_load.hpp"
#include "serving/summary.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

using Parts = TtftParts<Picoseconds>;

bool equal(const Parts& a, const Parts& b) {
  return std::ranges::all_of(kTtftParts,
                             [&](const TtftPart& part) { return a.*part.picoseconds == b.*part.picoseconds; });
}

// Adds up the parts from the passes alone.
class FromPasses final : public QueueObserver {
 public:
  explicit FromPasses(LinearTimes& times) : times_(times) {}
  void ran(const Passes& run) override {
    const Picoseconds length = run.time.sum(run.count);
    for (const PassPart& part : run.parts) {
      if (!part.reads) continue;
      Seen& seen = seen_[part.request->id];
      if (seen.has_token) continue;
      seen.reading += length;
      const Chunk chunk{0, part.tokens, part.tokens};
      seen.alone += times_.time({}, {&chunk, 1}).first;
      seen.has_token = part.samples;
    }
    for (auto& [id, seen] : seen_) seen.passes += seen.over ? 0 : length, seen.over = seen.has_token;
  }
  void ended(const Departure& outcome) override { outcomes.push_back(outcome); }
  bool wants_parts() const override { return true; }

  Parts parts_of(const Departure& o) {
    const Seen& seen = seen_[o.request.id];
    return {0, o.scheduled - o.request.arrival, seen.alone, seen.reading - seen.alone, seen.passes - seen.reading};
  }
  std::vector<Departure> outcomes;

 private:
  struct Seen {
    Picoseconds reading = 0, alone = 0, passes = 0;  // passes: all since the first that reads the request
    bool has_token = false, over = false;
  };
  LinearTimes& times_;
  std::map<std::int64_t, Seen> seen_;
};

TEST_CASE("a time to first token is the queue, the own prefill, what others add to it, and passes of others") {
  LinearTimes times;
  times.base = 1000, times.read = 10, times.sequence = 5;
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.max_num_batched_tokens = 100, rules.in_flight = 1, rules.prefix_caching = false;
  ListedRequests requests({request(0, 150, 3), request(0, 80, 2)});
  EventRecorder seen;
  serve(requests, times, rules, full_cache(16), seen);
  // A100 takes 2000, A50* B50 2000, B30* with a token of A 1305. Alone, chunks take 1000 and 10 a token.
  CHECK(equal(ttft_parts(seen.of(0)), {0, 0, 2000 + 1500, 500, 0}));
  CHECK(equal(ttft_parts(seen.of(1)), {0, 2000, 1500 + 1300, 500 + 5, 0}));
}

TEST_CASE("passes of others between its own count when prompts take turns") {
  LinearTimes times;
  times.base = 1000, times.read = 10;
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.max_num_batched_tokens = 100, rules.in_flight = 1, rules.prefix_caching = false;
  rules.full_prompt_gate = false, rules.blocks = 15, rules.block = 10;
  // Both prompts do not fit: B is read up to 50 tokens, loses them, and waits until A has left.
  ListedRequests requests({request(0, 50, 60), request(0, 120, 2)});
  EventRecorder seen;
  serve(requests, times, rules, full_cache(10), seen);
  const Departure& b = seen.of(1);
  REQUIRE(b.preemptions == 1);
  const Parts parts = ttft_parts(b);
  CHECK(parts.between > 0);
  CHECK(parts.sum() == b.first_token - b.request.arrival);
}

TEST_CASE("parts are those of the passes, on every engine and random loads") {
  std::int64_t preempted = 0, between = 0;
  for (const Engine engine : {Engine::kVllmV1, Engine::kVllmV0, Engine::kSglang, Engine::kTrtllm, Engine::kStatic}) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      INFO(static_cast<int>(engine) << " " << seed);
      Load load = random_load(engine, seed);
      load.rules.tiers.clear(), load.rules.host_copies = false;  // loads lengthen passes, or leave gaps between them
      FromPasses passes(load.times);
      serve(load.requests, load.times, load.rules, load.footprint_of(), passes);
      for (const Departure& o : passes.outcomes) {
        if (o.rejected) continue;
        const Parts parts = ttft_parts(o);
        CHECK(parts.sum() == o.first_token - o.request.arrival);
        for (const TtftPart& part : kTtftParts) CHECK(parts.*part.picoseconds >= 0);
        CHECK(equal(parts, passes.parts_of(o)));
        preempted += o.preemptions, between += parts.between > 0 ? 1 : 0;
      }
    }
  }
  CHECK((preempted > 100 && between > 100));
}

TEST_CASE("parts of the mean and of the 99th percentile add up to them") {
  serving::SummaryRecorder recorder({});
  // 200 requests: the i-th waits i ms, is read in 5 ms of which 2 are due to others, and waits 1 ms in the front end.
  for (std::int64_t i = 1; i <= 200; ++i) {
    const auto ms = [](std::int64_t t) { return to_picos(1e-3 * static_cast<double>(t)); };
    Departure o;
    o.request = request(0, 10, 2);
    o.request.front_end = ms(1);
    o.scheduled = ms(1 + i), o.first_token = ms(1 + i + 5), o.last_token = ms(1 + i + 6);
    o.reading = ms(5), o.reading_alone = ms(3);
    recorder.ended(o);
  }
  const Summary s = recorder.summary();
  CHECK(s.ttft_mean.front_end == Approx(1e-3));
  CHECK(s.ttft_mean.queue == Approx(0.1005));
  CHECK(s.ttft_mean.prefill == Approx(3e-3));
  CHECK(s.ttft_mean.beside == Approx(2e-3));
  CHECK(s.ttft_mean.sum() == Approx(s.ttft.mean));
  CHECK(s.queue.mean == Approx(0.1005));  // at the engine
  // The 198th of 200, to the width of a bucket.
  CHECK(s.ttft_p99.queue == Approx(0.198).epsilon(5e-4));
  CHECK(s.ttft_p99.prefill == Approx(3e-3).epsilon(5e-4));
  CHECK(s.ttft_p99.sum() == Approx(s.ttft.p99));
  CHECK(s.ttft.p99 == Approx(0.204).epsilon(5e-4));
}

}  // namespace

}  // namespace kvcast::tests
