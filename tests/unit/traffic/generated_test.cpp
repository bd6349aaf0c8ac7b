// Drawn requests: their times, lengths and content.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <set>

#include "support.hpp"
#include "support/error_of.hpp"
#include "traffic/draws.hpp"
#include "traffic/front_end.hpp"

namespace kvcast::tests {

using namespace traffic;

namespace {

constexpr Picoseconds kSecond = 1'000'000'000'000;

struct Moments {
  double mean = 0, cv = 0;
};

template <typename Draw>
Moments moments_of(std::int64_t n, const Draw& draw) {
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = draw(i);
    sum += x, squares += x * x;
  }
  const double mean = sum / static_cast<double>(n), variance = squares / static_cast<double>(n) - mean * mean;
  return {mean, std::sqrt(variance) / mean};
}

}  // namespace

TEST_CASE("gaps have their mean and coefficient of variation") {
  constexpr std::int64_t kGaps = 200'000;
  const auto root = std::sqrt(static_cast<double>(kGaps));
  const Stream stream = stream_of(1, Purpose::kGap);
  for (const double cv : {0.1, 0.5, 1.0, 2.0, 3.0}) {
    INFO(cv);
    const Moments gamma =
        moments_of(kGaps, [&](std::int64_t i) { return unit_gap(stream, i, config::Traffic::Process::kGamma, cv); });
    // Standard error of a mean: cv / √n. That of a cv, relative to it, has the variance (κ − 1) / 4 − γ cv + cv² over n
    // with kurtosis κ = 3 + 6 cv² and skewness γ = 2 cv of a gamma distribution, which is (1 + cv²) / 2.
    CHECK(std::abs(gamma.mean - 1) < 4 * cv / root);
    const double relative = std::sqrt((1 + cv * cv) / 2);
    CHECK(std::abs(gamma.cv / cv - 1) < 4 * relative / root);
  }
  const Moments poisson =
      moments_of(kGaps, [&](std::int64_t i) { return unit_gap(stream, i, config::Traffic::Process::kPoisson, 1); });
  CHECK(std::abs(poisson.mean - 1) < 4 / root);
  CHECK(std::abs(poisson.cv - 1) < 4 / root);
}

TEST_CASE("requests of an open loop arrive at the rate") {
  const std::vector<Request> constant = all_of("{rate: 4, process: constant, requests: 3}");
  REQUIRE(constant.size() == 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(constant[static_cast<std::size_t>(i)].id == i);
    CHECK(constant[static_cast<std::size_t>(i)].arrival == (i + 1) * kSecond / 4);
    CHECK(constant[static_cast<std::size_t>(i)].session == -1);
    CHECK(constant[static_cast<std::size_t>(i)].content.empty());
  }
  const std::vector<Request> poisson = all_of("{rate: 4, requests: 40000}");
  // Standard error of the last arrival: √n gaps.
  CHECK(std::abs(to_seconds(poisson.back().arrival) - 10000) < 4 * 200 / 4.0);
  for (const Request& request : all_of("{rate: all, requests: 5}")) CHECK(request.arrival == 0);
}

TEST_CASE("a request is the same whatever the rate, process and service") {
  const std::string lengths = "prompt_tokens: {mean: 1000, cv: 1}, output_tokens: {low: 1, high: 99}, requests: 50";
  const auto slow = all_of("{rate: 1, " + lengths + "}"), fast = all_of("{rate: 8, " + lengths + "}", 5 * kSecond);
  const auto closed = all_of("{concurrency: 3, " + lengths + "}", kSecond),
             all = all_of("{rate: all, " + lengths + "}");
  const auto other = all_of("{rate: 1, seed: 2, " + lengths + "}");
  bool differs = false;
  REQUIRE(slow.size() == 50);
  REQUIRE(closed.size() == 50);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    for (const auto* requests : {&fast, &closed, &all}) {
      CHECK((*requests)[i].prompt_tokens == slow[i].prompt_tokens);
      CHECK((*requests)[i].output_tokens == slow[i].output_tokens);
    }
    CHECK(std::abs(slow[i].arrival - 8 * fast[i].arrival) <= 8);  // both are rounded
    differs = differs || other[i].prompt_tokens != slow[i].prompt_tokens;
  }
  CHECK(differs);
}

TEST_CASE("lengths have the distribution that is asked for") {
  const config::Traffic traffic =
      traffic_of("{rate: 1, prompt_tokens: {mean: 1000, cv: 0.5}, output_tokens: {low: 10, high: 20}}");
  const TokenCounts prompts(traffic, Purpose::kPrompt), outputs(traffic, Purpose::kOutput);
  const Moments lognormal = moments_of(100'000, [&](std::int64_t i) { return static_cast<double>(prompts.of(i)); });
  CHECK(std::abs(lognormal.mean - 1000) < 4 * 500 / std::sqrt(1e5));
  CHECK(lognormal.cv == Approx(0.5).epsilon(0.02));
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) seen.insert(outputs.of(i));
  CHECK(seen.size() == 11);
  CHECK(*seen.begin() == 10);
  CHECK(*seen.rbegin() == 20);
  // Never below 1, however wide the distribution.
  const config::Traffic tiny = traffic_of("{rate: 1, prompt_tokens: {mean: 1, cv: 5}}");
  const TokenCounts counts(tiny, Purpose::kPrompt);
  for (std::int64_t i = 0; i < 1000; ++i) REQUIRE(counts.of(i) >= 1);
}

TEST_CASE("both lengths of a file are of one row") {
  const TraceFile file("output_tokens,prompt_tokens,more\n1,100,x\n2,200,y\n3,300,z\n");
  const std::string lengths = "{file: " + file.path + "}";
  const std::string text = "{rate: all, requests: 60, prompt_tokens: " + lengths + ", output_tokens: " + lengths + "}";
  std::set<std::int64_t> seen;
  for (const Request& request : all_of(text)) {
    CHECK(request.prompt_tokens == 100 * request.output_tokens);
    seen.insert(request.prompt_tokens);
  }
  CHECK(seen.size() == 3);
  file.write("prompt_tokens,output_tokens\n5,0.5\n");
  CHECK_THAT(error_of([&] { make_source(traffic_of(text)); }), Catch::Matchers::Contains("trace:2:3: output_tokens"));
  file.write("prompt_tokens\n5\n");
  CHECK_THAT(error_of([&] { make_source(traffic_of(text)); }),
             Catch::Matchers::Contains("\"output_tokens\" is missing"));
}

TEST_CASE("a closed loop keeps so many requests in flight") {
  // Two in flight, 3 s of service, 1 s of thinking: pairs at 0, 4 and 8 s, the last one alone.
  const auto requests = all_of("{concurrency: 2, think_time: 1 s, requests: 5}", 3 * kSecond);
  REQUIRE(requests.size() == 5);
  const std::int64_t expected[] = {0, 0, 4, 4, 8};
  for (std::size_t i = 0; i < 5; ++i) CHECK(requests[i].arrival == expected[i] * kSecond);

  const auto source = make_source(traffic_of("{concurrency: 1, requests: 2}"));
  CHECK(source->next() == 0);
  const Request first = source->take();
  CHECK(source->next() == kNever);
  source->ended(first, 7);
  CHECK(source->next() == 7);
  source->ended(source->take(), 9);
  CHECK(source->next() == kNever);
}

TEST_CASE("a later turn's prompt has the turns before") {
  // 100 + 10 + 7 = 117, 117 + 10 + 7 = 134. Of 4 requests in sessions of 3 turns the second session has one.
  const auto requests = all_of(
      "{concurrency: 1, think_time: 5 s, requests: 4, prompt_tokens: 100, output_tokens: 10, "
      "shared_prefix: {tokens: 30}, sessions: {turns: 3, turn_tokens: 7, think_time: 2 s}}",
      kSecond);
  REQUIRE(requests.size() == 4);
  const std::int64_t arrivals[] = {0, 3, 6, 12}, prompts[] = {100, 117, 134, 100}, sessions[] = {0, 0, 0, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(requests[i].arrival == arrivals[i] * kSecond);
    CHECK(requests[i].prompt_tokens == prompts[i]);
    CHECK(requests[i].session == sessions[i]);
    CHECK(requests[i].turn == static_cast<std::int32_t>(i % 3));
    std::int64_t covered = 0;
    for (const Segment& segment : requests[i].content) covered += segment.tokens;
    CHECK(covered == prompts[i]);
  }
  const auto &first = requests[0].content, &second = requests[1].content, &third = requests[2].content;
  REQUIRE(first.size() == 2);  // prefix, own
  CHECK(first[0].tokens == 30);
  REQUIRE(second.size() == 4);  // and the answer, the addition
  CHECK(std::vector(second.begin(), second.begin() + 2) == first);
  CHECK(second[2] == Segment{requests[0].answer_key, 10});
  CHECK(second[3].tokens == 7);
  REQUIRE(third.size() == 6);
  CHECK(std::vector(third.begin(), third.begin() + 4) == second);
  CHECK(third[4] == Segment{requests[1].answer_key, 10});
  CHECK(requests[2].answer_key == 0);  // no turn follows
  CHECK(requests[3].answer_key == 0);
  CHECK(requests[3].content[0] == first[0]);
  CHECK(requests[3].content[1].key != first[1].key);
}

TEST_CASE("first turns of sessions arrive so that all turns have the rate") {
  const auto requests = all_of(
      "{rate: 2, process: constant, requests: 6, prompt_tokens: 9, output_tokens: 1, "
      "sessions: {turns: 2, turn_tokens: 1, think_time: 100 ms}}");
  REQUIRE(requests.size() == 6);
  const double arrivals[] = {1, 1.1, 2, 2.1, 3, 3.1};
  for (std::size_t i = 0; i < 6; ++i) CHECK(to_seconds(requests[i].arrival) == Approx(arrivals[i]));
}

TEST_CASE("requests of a group share their prefix") {
  const auto requests =
      all_of("{rate: all, requests: 300, prompt_tokens: 100, shared_prefix: {tokens: 40, groups: 3}}");
  std::map<std::uint64_t, int> groups;
  for (const Request& request : requests) {
    REQUIRE(request.content.size() == 1);
    CHECK(request.content[0].tokens == 40);
    ++groups[request.content[0].key];
  }
  REQUIRE(groups.size() == 3);
  for (const auto& [key, count] : groups) CHECK(std::abs(count - 100) < 4 * std::sqrt(300 * 2 / 9.0));
}

TEST_CASE("prompts of a group come again in one order") {
  const auto requests = all_of(
      "{rate: all, requests: 600, prompt_tokens: {low: 50, high: 100}, shared_prefix: {tokens: 40, groups: 3, prompts: "
      "2}}");
  std::map<std::uint64_t, std::set<std::uint64_t>> groups;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    REQUIRE(requests[i].content.size() == 2);
    CHECK(requests[i].content[0].tokens == 40);
    groups[requests[i].content[0].key].insert(requests[i].content[1].key);
    if (i < 6) continue;
    CHECK(requests[i].prompt_tokens == requests[i - 6].prompt_tokens);
    CHECK(requests[i].content[1].key == requests[i - 6].content[1].key);
  }
  REQUIRE(groups.size() == 3);  // all six within the first six, for the order is one of them
  std::set<std::uint64_t> all;
  for (const auto& [key, questions] : groups) {
    CHECK(questions.size() == 2);
    all.insert(questions.begin(), questions.end());
  }
  CHECK(all.size() == 6);
  const auto in_order = [](std::uint64_t seed) {
    std::vector<std::int64_t> lengths;
    for (const Request& r : all_of("{rate: all, requests: 20, prompt_tokens: {low: 1, high: 100000}, seed: " +
                                   std::to_string(seed) + ", shared_prefix: {tokens: 1, groups: 4, prompts: 5}}"))
      lengths.push_back(r.prompt_tokens);
    return lengths;
  };
  CHECK(in_order(1) != in_order(2));
}

TEST_CASE("a front end lets requests through in turn, and what holds up no other comes on top") {
  const std::string text = "{rate: 0.5, process: constant, requests: 4}";
  const auto clients = all_of(text);  // at 2, 4, 6 and 8 s
  FrontEnd slow(make_source(traffic_of(text)), 3 * kSecond, kSecond / 2);
  // In the front end from 2 to 5, 5 to 8, 8 to 11 and 11 to 14 s, at the engine half a second later.
  const std::vector<Picoseconds> reached = {11, 17, 23, 29};  // half seconds
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(slow.next() == reached[i] * kSecond / 2);
    const Request request = slow.take();
    CHECK(request.arrival == clients[i].arrival);
    CHECK(request.front_end == reached[i] * kSecond / 2 - request.arrival);
  }
  CHECK(slow.next() == kNever);
  // Faster than requests come, it holds up none.
  FrontEnd fast(make_source(traffic_of(text)), kSecond, kSecond);
  while (fast.next() != kNever) CHECK(fast.take().front_end == 2 * kSecond);
  // A closed loop goes on when the engine has ended a request.
  FrontEnd loop(make_source(traffic_of("{concurrency: 1, think_time: 1 s, requests: 2}")), kSecond, 0);
  const Request first = loop.take();
  CHECK(loop.next() == kNever);
  loop.ended(first, 5 * kSecond);
  CHECK(loop.next() == 7 * kSecond);
}

TEST_CASE("arrivals end with simulated time") {
  const auto requests = all_of("{concurrency: 1, think_time: 900000 s, requests: 20}");
  REQUIRE(requests.size() == 20);
  CHECK(requests.back().arrival == kNever / 2);
}

}  // namespace kvcast::tests
