// Random loads on every engine: what must hold of any schedule, and runs in closed form against single passes.
#include <catch2/catch.hpp>

#include <map>

#include "random_load.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

constexpr Engine kEngines[] = {Engine::kVllmV1, Engine::kVllmV0, Engine::kSglang, Engine::kTrtllm, Engine::kStatic};

// Counts the tokens that each request gets, beyond what the recorder keeps.
class Counter final : public QueueObserver {
 public:
  EventRecorder seen;
  std::map<std::int64_t, std::int64_t> sampled;

  void ended(const Departure& outcome) override { seen.ended(outcome); }
  void preempted(const traffic::Request& request, Picoseconds now) override { seen.preempted(request, now); }
  void ran(const Passes& run) override {
    seen.ran(run);
    for (const PassPart& part : run.parts) sampled[part.request->id] += part.samples ? run.count : 0;
  }
  bool wants_parts() const override { return true; }
};

Counter serve_load(Engine engine, std::uint64_t seed, bool skip) {
  Load load = random_load(engine, seed);
  load.rules.skip = skip;
  Counter counter;
  serve(load.requests, load.times, load.rules, load.footprint_of(), counter);
  CHECK(load.requests.empty());
  CHECK_FALSE(load.requests.late());
  CHECK(static_cast<std::int64_t>(counter.seen.outcomes.size()) == load.requests.taken());
  return counter;
}

// One pass of the expanded runs.
struct Single {
  Picoseconds start, time;
  std::int64_t decodes, read_tokens;
  bool operator==(const Single&) const = default;
};

std::vector<Single> singles(const EventRecorder& seen) {
  std::vector<Single> all;
  for (const Passes& run : seen.runs) {
    for (std::int64_t j = 0; j < run.count; ++j) {
      all.push_back({run.start + run.time.sum(j), run.time.at(j), run.decodes, run.read_tokens});
    }
  }
  return all;
}

// Inter-token latencies and how often they occur.
std::map<Picoseconds, std::int64_t> latencies(const EventRecorder& seen) {
  std::map<Picoseconds, std::int64_t> counts;
  for (std::size_t i = 0; i < seen.runs.size(); ++i) {
    const Passes& run = seen.runs[i];
    std::int64_t sequences = 0;
    for (const Gap& gap : seen.gaps[i]) {
      counts[gap.since + run.time.at(0)] += gap.sequences;
      sequences += gap.sequences;
    }
    for (std::int64_t j = 1; j < run.count; ++j) counts[run.time.at(j)] += sequences;
  }
  return counts;
}

void same(const Departure& a, const Departure& b) {
  CHECK(a.request.id == b.request.id);
  CHECK(a.rejected == b.rejected);
  CHECK(a.scheduled == b.scheduled);
  CHECK(a.first_token == b.first_token);
  CHECK(a.last_token == b.last_token);
  CHECK(a.preemptions == b.preemptions);
  CHECK(a.hit_tokens == b.hit_tokens);
  CHECK(a.loaded_tokens == b.loaded_tokens);
  CHECK(a.recomputed_tokens == b.recomputed_tokens);
}

// Every request has all its tokens, at times in order.
void complete(const Counter& counter) {
  std::map<Picoseconds, std::int64_t> gaps = latencies(counter.seen);
  std::int64_t later_tokens = 0, all = 0;
  for (const Departure& outcome : counter.seen.outcomes) {
    const auto tokens = counter.sampled.find(outcome.request.id);
    if (outcome.rejected) {
      CHECK(tokens == counter.sampled.end());
      continue;
    }
    REQUIRE(tokens != counter.sampled.end());
    CHECK(tokens->second == outcome.request.output_tokens);
    CHECK(outcome.request.arrival <= outcome.scheduled);
    CHECK(outcome.scheduled < outcome.first_token);
    CHECK(outcome.first_token <= outcome.last_token);
    later_tokens += outcome.request.output_tokens - 1;
    all += outcome.last_token - outcome.first_token;
  }
  for (const auto& [gap, count] : gaps) {
    later_tokens -= count;
    all -= gap * count;
  }
  CHECK(later_tokens == 0);  // each token but the first ends one gap,
  CHECK(all == 0);           // and gaps add up to the time between first and last
}

// Passes follow each other, and there is no pause while a request is there.
void conserves_work(const EventRecorder& seen, std::int64_t blocks) {
  Picoseconds end = 0;
  for (const Passes& run : seen.runs) {
    CHECK(run.start >= end);
    CHECK(run.blocks <= blocks);
    CHECK((run.count == 1 || run.reads == 0));
    if (run.start > end) {
      for (const Departure& outcome : seen.outcomes) {
        CHECK((outcome.request.arrival >= run.start || outcome.last_token <= end || outcome.rejected));
      }
    }
    end = run.start + run.time.sum(run.count);
  }
}

}  // namespace

TEST_CASE("random loads end, with all tokens and without idle passes") {
  for (const Engine engine : kEngines) {
    std::int64_t preemptions = 0, rejected = 0, hits = 0, kept = 0, loaded = 0, total = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      INFO(config::scheduler_name(engine) << ", seed " << seed);
      const Counter counter = serve_load(engine, seed, true);
      complete(counter);
      const Rules rules = random_load(engine, seed).rules;
      if (rules.tiers.empty()) conserves_work(counter.seen, rules.blocks);  // a request that is loaded waits
      for (const Departure& outcome : counter.seen.outcomes) {
        (rules.reuse == Reuse::kChain ? kept : hits) += outcome.hit_tokens;
        loaded += outcome.loaded_tokens;
        CHECK(outcome.hit_tokens < outcome.request.prompt_tokens);
        if (rules.reuse == Reuse::kNone) CHECK(outcome.hit_tokens == 0);
        preemptions += outcome.preemptions;
        rejected += outcome.rejected ? 1 : 0;
        ++total;
      }
    }
    INFO(config::scheduler_name(engine));
    // The loads reach what they are to test.
    CHECK(rejected > total / 100);
    CHECK(rejected < total / 2);
    if (engine != Engine::kStatic) CHECK(preemptions > 100);
    if (engine == Engine::kVllmV1 || engine == Engine::kSglang) CHECK(std::min({hits, kept, loaded}) > 1000);
  }
}

TEST_CASE("runs in closed form are the passes one by one") {
  for (const Engine engine : kEngines) {
    std::int64_t runs = 0, passes = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      INFO(config::scheduler_name(engine) << ", seed " << seed);
      const Counter fast = serve_load(engine, seed, true), slow = serve_load(engine, seed, false);
      REQUIRE(fast.seen.outcomes.size() == slow.seen.outcomes.size());
      for (std::size_t i = 0; i < fast.seen.outcomes.size(); ++i) {
        same(fast.seen.outcomes[i], slow.seen.outcomes[i]);
      }
      CHECK((singles(fast.seen) == singles(slow.seen)));
      CHECK(latencies(fast.seen) == latencies(slow.seen));
      runs += static_cast<std::int64_t>(fast.seen.runs.size());
      passes += static_cast<std::int64_t>(slow.seen.runs.size());
    }
    INFO(config::scheduler_name(engine));
    CHECK(runs < passes * 3 / 4);
  }
}

}  // namespace kvcast::tests
