// Replicas together: against single queues, against each other's routing, and in any number of threads.
#include <catch2/catch.hpp>

#include <deque>

#include "random_load.hpp"
#include "serving/fleet.hpp"
#include "serving/router.hpp"
#include "serving/summary.hpp"

namespace kvcast::tests {

using namespace serving;
using config::Routing;

namespace {

// A Poisson source whose open() can be hidden.
class Open final : public traffic::RequestSource {
 public:
  Open(PoissonRequests all, bool open, std::int64_t every = 1, std::int64_t first = 0)
      : all_(std::move(all)), open_(open), every_(every) {
    for (std::int64_t i = 0; i < first && all_.next() != traffic::kNever; ++i) all_.take();
  }
  Picoseconds next() override { return all_.next(); }
  traffic::Request take() override {
    traffic::Request taken = all_.take();
    for (std::int64_t i = 1; i < every_ && all_.next() != traffic::kNever; ++i) all_.take();
    return taken;
  }
  bool open() const override { return open_; }
  void ended(const traffic::Request& request, Picoseconds now) override { all_.ended(request, now); }

 private:
  PoissonRequests all_;
  bool open_;
  std::int64_t every_;
};

PoissonRequests poisson(double rate, std::int64_t count) {
  const Stream lengths(9);
  return {rate, count, 4, [lengths](std::uint64_t i) {
            return std::pair<std::int64_t, std::int64_t>(20 + lengths.below(2 * i, 600),
                                                         1 + lengths.below(2 * i + 1, 120));
          }};
}

LinearTimes fleet_times() {
  LinearTimes times;
  times.base = 5'000'000'000;  // 5 ms
  times.read = 30'000'000;
  times.sequence = 20'000'000;
  times.context = 10'000;
  return times;
}

using Seen = std::deque<EventRecorder>;

Seen served(traffic::RequestSource& source, const Fleet& fleet, const Rules& rules, LinearTimes times = fleet_times()) {
  Seen seen;
  serve_fleet(source, fleet, rules, [&](std::int64_t) {
    return ReplicaParts{&times, full_cache(rules.block), &seen.emplace_back()};
  });
  return seen;
}

void same_results(const Departure& a, const Departure& b) {
  CHECK(a.request.id == b.request.id);
  CHECK((a.scheduled == b.scheduled && a.first_token == b.first_token && a.last_token == b.last_token));
  CHECK((a.preemptions == b.preemptions && a.hit_tokens == b.hit_tokens && a.rejected == b.rejected));
}

void same_results(const EventRecorder& a, const EventRecorder& b) {
  REQUIRE(a.outcomes.size() == b.outcomes.size());
  for (std::size_t i = 0; i < a.outcomes.size(); ++i) same_results(a.outcomes[i], b.outcomes[i]);
  REQUIRE(a.runs.size() == b.runs.size());
  for (std::size_t i = 0; i < a.runs.size(); ++i) {
    CHECK((a.runs[i].start == b.runs[i].start && a.runs[i].count == b.runs[i].count));
  }
}

Rules small_rules(Engine engine = Engine::kVllmV1) {
  Rules rules = Rules::of(engine);
  rules.block = 16;
  rules.max_num_seqs = 12;
  rules.max_num_batched_tokens = 256;
  rules.blocks = 200;
  return rules;
}

}  // namespace

TEST_CASE("round robin: each replica serves every n-th request as a queue of its own would") {
  constexpr std::int64_t kReplicas = 3, kRequests = 900;
  for (const Engine engine : {Engine::kVllmV1, Engine::kVllmV0, Engine::kSglang, Engine::kTrtllm, Engine::kStatic}) {
    const Rules rules = small_rules(engine);
    for (const bool open : {true, false}) {
      INFO(config::scheduler_name(engine) << (open ? ", apart" : ", on one clock"));
      Open all(poisson(24, kRequests), open);
      const Seen fleet = served(all, {kReplicas, Routing::kRoundRobin, 2}, rules);
      for (std::int64_t k = 0; k < kReplicas; ++k) {
        Open own(poisson(24, kRequests), false, kReplicas, k);
        EventRecorder alone;
        LinearTimes times = fleet_times();
        serve(own, times, rules, full_cache(rules.block), alone);
        CHECK(alone.outcomes.size() == kRequests / kReplicas);
        same_results(fleet[static_cast<std::size_t>(k)], alone);
        for (const Departure& one : fleet[static_cast<std::size_t>(k)].outcomes) CHECK(one.replica == k);
      }
    }
  }
}

TEST_CASE("results do not depend on threads, nor on the windows in which requests are dealt") {
  constexpr std::int64_t kRequests = 40'000;  // some windows
  const auto summary_with = [&](int threads, bool open) {
    Open source(poisson(60, kRequests), open);
    LinearTimes times = fleet_times();
    std::deque<serving::SummaryRecorder> recorders;
    serve_fleet(source, {7, Routing::kRoundRobin, threads}, small_rules(), [&](std::int64_t) {
      return ReplicaParts{&times, full_cache(16),
                          &recorders.emplace_back(serving::SummaryRecorder::Setting{{}, 200, false})};
    });
    for (std::size_t k = 1; k < recorders.size(); ++k) recorders[0].add(recorders[k]);
    return recorders[0].summary();
  };
  const Summary one = summary_with(1, true);
  CHECK(one.completed == kRequests);
  for (const Summary& other : {summary_with(2, true), summary_with(5, true), summary_with(1, false)}) {
    CHECK((one.ttft.mean == other.ttft.mean && one.itl.p99 == other.itl.p99 && one.e2e.p90 == other.e2e.p90));
    CHECK((one.running_mean == other.running_mean && one.kv_used_mean == other.kv_used_mean));
    CHECK((one.duration_s == other.duration_s && one.preemptions == other.preemptions));
    REQUIRE(one.moments.size() == other.moments.size());
    for (std::size_t i = 0; i < one.moments.size(); ++i) CHECK(one.moments[i].running == other.moments[i].running);
  }
}

TEST_CASE("numbers of a fleet are sums over its replicas, and means of what each holds") {
  Open source(poisson(20, 3000), true);
  LinearTimes times = fleet_times();
  std::deque<serving::SummaryRecorder> recorders;
  Rules rules = small_rules();
  rules.in_flight = 1, rules.blocks = 1000;
  serve_fleet(source, {4, Routing::kRoundRobin, 1}, rules, [&](std::int64_t) {
    return ReplicaParts{&times, full_cache(16),
                        &recorders.emplace_back(serving::SummaryRecorder::Setting{{}, 1000, false})};
  });
  std::vector<Summary> each;
  for (const serving::SummaryRecorder& one : recorders) each.push_back(one.summary());
  for (std::size_t k = 1; k < recorders.size(); ++k) recorders[0].add(recorders[k]);
  const Summary all = recorders[0].summary();
  double completed = 0, ttft = 0, held = 0, most = 0;
  for (const Summary& one : each) {
    completed += one.completed, ttft += one.ttft.mean * one.completed;
    held += one.running_mean * one.duration_s / 4, most = std::max(most, one.running_max);
  }
  CHECK(completed == 3000);
  CHECK(all.completed == 3000);
  CHECK(all.ttft.mean == Approx(ttft / 3000));
  CHECK(all.running_mean * all.duration_s == Approx(held));
  CHECK(all.running_max == most);
  CHECK(all.requests_per_s == Approx(3000 / all.duration_s));
  // Little's law, of one of four replicas: it runs what arrives there for as long as that is in service.
  CHECK(4 * all.running_mean == Approx(all.requests_per_s * (all.e2e.mean - all.queue.mean)));
  double over_time = 0;
  for (const Moment& m : all.moments) over_time += m.running / static_cast<double>(all.moments.size());
  CHECK(over_time == Approx(all.running_mean).epsilon(0.1));
}

// One request at a time per replica, exponential lengths: n queues M/M/1, or n servers that a request joins by load.
TEST_CASE("least loaded: waits are between those of M/M/n and of n times M/M/1") {
  constexpr std::int64_t kReplicas = 4;
  constexpr double kLoad = 0.8, kService = 0.1;
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.max_num_seqs = 1;
  rules.max_num_batched_tokens = 1'000'000;
  rules.prefix_caching = false;
  rules.in_flight = 1;
  LinearTimes times;
  times.base = 0;
  times.read = 10'000'000;  // 10 us a token, 10,000 tokens in the mean
  const Stream lengths(5);
  const auto wait = [&](Routing routing) {
    PoissonRequests source(kReplicas * kLoad / kService, 60'000, 12, [&](std::uint64_t i) {
      return std::pair<std::int64_t, std::int64_t>(std::ceil(-1e4 * std::log1p(-lengths.uniform(i))) + 1, 1);
    });
    const Seen seen = served(source, {kReplicas, routing}, rules, times);
    double sum = 0, count = 0;
    for (const EventRecorder& one : seen) {
      for (const Departure& o : one.outcomes) sum += to_seconds(o.scheduled - o.request.arrival), ++count;
    }
    CHECK(count == 60'000);
    return sum / count;
  };
  // Erlang's C for 4 servers at 0.8: 0.5964, and so a mean wait of 0.5964 · 0.1 / (4 · 0.2) = 0.0746 s; M/M/1: 0.4 s.
  const double joined = wait(Routing::kLeastLoaded), dealt = wait(Routing::kRoundRobin);
  CHECK(joined > 0.0746 * 0.93);
  CHECK(joined < 0.0746 * 1.7);  // shortest queue against one queue
  CHECK(dealt > 1.5 * joined);
  CHECK(dealt < 0.4);  // every fourth arrival is more regular than Poisson's
}

TEST_CASE("no request is lost: random loads, all engines, all routings") {
  for (const Engine engine : {Engine::kVllmV1, Engine::kVllmV0, Engine::kSglang, Engine::kTrtllm, Engine::kStatic}) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      Load load = random_load(engine, seed);
      const auto replicas = static_cast<std::int64_t>(1 + seed % 4);
      const auto routing = static_cast<Routing>(seed % 3);
      INFO(config::scheduler_name(engine) << ", seed " << seed);
      Seen seen;
      serve_fleet(load.requests, {replicas, routing}, load.rules, [&](std::int64_t) {
        return ReplicaParts{&load.times, load.footprint_of(), &seen.emplace_back()};
      });
      std::set<std::int64_t> ids;
      for (const EventRecorder& one : seen) {
        for (const Departure& o : one.outcomes) ids.insert(o.request.id);
      }
      CHECK(load.requests.empty());
      CHECK(static_cast<std::int64_t>(ids.size()) == load.requests.taken());
    }
  }
}

TEST_CASE("a router that knows prefixes keeps sessions together until loads are out of balance") {
  const auto with_prefix = [](std::uint64_t key, std::int64_t shared) {
    traffic::Request made = request(0, 100, 1);
    made.id = static_cast<std::int64_t>(key) * 1000 + shared;
    made.content = {{key, shared}};
    return made;
  };
  const auto router = make_router(Routing::kPrefix, 10, 1000);
  std::vector<std::int64_t> load = {0, 0, 0};
  // Unknown prompts go to the smallest record: 0, 1, 2.
  for (std::uint64_t key = 1; key <= 3; ++key) CHECK(router->route(with_prefix(key, 100), load) == key - 1);
  CHECK(router->route(with_prefix(2, 60), load) == 1);
  // 3 of 10 blocks are not more than 30 %; the smallest records are 0 and 2.
  CHECK(router->route(with_prefix(2, 30), load) != 1);
  load = {0, 65, 0};  // 65 more than the least
  CHECK(router->route(with_prefix(2, 100), load) != 1);
  load = {200, 265, 200};  // but not half more
  CHECK(router->route(with_prefix(2, 60), load) == 1);
}

TEST_CASE("a router forgets the blocks that were used least recently") {
  const auto prompt = [](std::int64_t tokens, std::vector<std::uint64_t> keys) {
    traffic::Request made = request(0, tokens, 1);
    for (const std::uint64_t key : keys) made.content.push_back({key, 10});
    return made;
  };
  // A match takes more than 30 %, and three blocks of a long prompt are 33 %; an unknown prompt goes to replica 1.
  const auto goes_to = [&](std::vector<std::uint64_t> wanted, bool second) {
    const auto router = make_router(Routing::kPrefix, 10, 4);
    const std::vector<std::int64_t> load = {0, 0};
    CHECK(router->route(prompt(30, {1, 2, 3}), load) == 0);
    if (second) CHECK(router->route(prompt(30, {1, 7, 8}), load) == 0);  // it finds the first block
    return router->route(prompt(90, std::move(wanted)), load);
  };
  CHECK(goes_to({1, 2, 3}, false) == 0);
  CHECK(goes_to({1, 2, 3}, true) == 1);  // of 1 2 3 7 8, the end of the first prompt is the oldest
  CHECK(goes_to({1, 7, 8}, true) == 0);
}

TEST_CASE("routing by prefix finds more in caches than dealing sessions out") {
  const auto hits = [](Routing routing) {
    Draws draw(3);
    Sessions requests;
    for (int i = 0; i < 61; ++i) {  // not a multiple of the replicas
      traffic::Request first = request(draw.between(0, 1000) * 1'000'000'000, draw.between(100, 300), 10);
      first.answer_key = static_cast<std::uint64_t>(100 + i);
      requests.add(std::move(first), std::vector<Sessions::Turn>(5, {20, 10, 1'000'000'000'000}));
    }
    Rules rules = small_rules();
    rules.blocks = 1000;
    const Seen seen = served(requests, {4, routing}, rules);
    double hit = 0, all = 0;
    for (const EventRecorder& one : seen) {
      for (const Departure& o : one.outcomes)
        hit += static_cast<double>(o.hit_tokens), all += static_cast<double>(o.request.prompt_tokens);
    }
    return hit / all;
  };
  CHECK(hits(Routing::kPrefix) > hits(Routing::kRoundRobin) + 0.2);
}

}  // namespace kvcast::tests
