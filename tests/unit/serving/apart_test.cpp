// Prefill and decode apart: worked schedules, what is sent and when, and random loads.
#include <catch2/catch.hpp>

#include <deque>

#include "random_load.hpp"
#include "serving/fleet.hpp"
#include "worked.hpp"

namespace kvcast::tests {

using namespace serving;
using config::Routing;
using Overlap = config::Transfer::Overlap;

namespace {

constexpr std::int64_t kBlock = 4;

// A block takes half a unit of time on the link.
TransferRules half_a_unit(Overlap overlap = Overlap::kNone, double slower = 1) {
  TransferRules rules;
  rules.rate = 1e12 / slower;
  rules.block_bytes = 500;
  rules.overlap = overlap;
  rules.layers = 2;
  return rules;
}

Rules rules_apart(Engine engine) {
  Rules rules = rules_of_set_1(engine, 100);
  rules.blocks = 400;
  if (engine == Engine::kSglang) rules.blocks *= kBlock, rules.block = 1;
  return rules;
}

struct Served {
  std::deque<EventRecorder> seen;   // by replica, those that read prompts last
  std::vector<Departure> outcomes;  // by request
};

Served served_apart(std::vector<traffic::Request> list, const Rules& rules, const TransferRules& transfer,
                    const FootprintOf& footprint_of, std::int64_t decoders = 1, std::int64_t readers = 1) {
  const std::size_t count = list.size();
  ListedRequests source(std::move(list));
  LinearTimes times;
  Served out;
  Fleet fleet{decoders, Routing::kRoundRobin};
  fleet.readers = {readers, transfer};
  serve_fleet(source, fleet, rules, [&](std::int64_t) {
    return ReplicaParts{&times, footprint_of, &out.seen.emplace_back()};
  });
  out.outcomes.resize(count);
  for (const EventRecorder& one : out.seen) {
    for (const Departure& o : one.outcomes) out.outcomes[static_cast<std::size_t>(o.request.id)] = o;
  }
  CHECK(source.count_ended() == static_cast<std::int64_t>(count));
  return out;
}

// A prompt that was read in passes of a unit each, from 0 on, in chunks of 4.
Departure read_in(std::int64_t chunks) {
  Departure read;
  read.request = request(0, 4 * chunks, 1);
  read.scheduled = 0, read.first_read = kUnit, read.prefilled = chunks * kUnit;
  read.last_read = read.prefilled - kUnit, read.last_chunk = 4;
  return read;
}

Picoseconds sent(Overlap overlap, double slower, const TransferLinks::Parcel& parcel, const Departure& read) {
  return TransferLinks(half_a_unit(overlap, slower), 1, 1).send(parcel, read);
}

}  // namespace

TEST_CASE("a cache is sent after the prompt, chunk by chunk or layer by layer") {
  TransferLinks::Parcel all{0, 0, 2, 0, true, 0};  // two blocks, a unit
  const Departure read = read_in(2);               // from 0 to 1 and from 1 to 2
  CHECK(sent(Overlap::kNone, 1, all, read) == 3 * kUnit);
  // The first block goes from 1 to 1.5, the second from 2 on.
  CHECK(sent(Overlap::kChunks, 1, all, read) == 5 * kUnit / 2);
  // Half a block, a quarter of a unit, is done at 0.5, 1, 1.5 and 2.
  CHECK(sent(Overlap::kLayers, 1, all, read) == 9 * kUnit / 4);
  // A link with an eighth of the rate is busy from the first part on.
  CHECK(sent(Overlap::kNone, 8, all, read) == 10 * kUnit);
  CHECK(sent(Overlap::kChunks, 8, all, read) == 9 * kUnit);
  CHECK(sent(Overlap::kLayers, 8, all, read) == 17 * kUnit / 2);
  // A policy that evicts at the end has one block then; its layers choose in the last pass.
  const TransferLinks::Parcel kept{0, 0, 1, 0, false, 0};
  CHECK(sent(Overlap::kNone, 1, kept, read) == 5 * kUnit / 2);
  CHECK(sent(Overlap::kChunks, 1, kept, read) == 5 * kUnit / 2);
  CHECK(sent(Overlap::kLayers, 1, kept, read) == 9 * kUnit / 4);
  // Nothing is sent before there is memory for it.
  all.reserved = 7 * kUnit;
  for (const Overlap overlap : {Overlap::kNone, Overlap::kChunks, Overlap::kLayers})
    CHECK(sent(overlap, 1, all, read) == 8 * kUnit);
}

TEST_CASE("a link serves one transfer after the other, and posting takes its time") {
  TransferRules rules = half_a_unit();
  rules.latency = 30, rules.post = 10, rules.descriptors = 6;  // of two blocks 12
  TransferLinks links(rules, 2, 2);
  const Departure read = read_in(2);
  CHECK(links.send({0, 0, 2, 0, true, 0}, read) == 3 * kUnit + 30 + 120);
  CHECK(links.send({0, 1, 2, 0, true, 0}, read) == 4 * kUnit + 30 + 120);  // the same sender
  CHECK(links.send({1, 1, 2, 0, true, 0}, read) == 5 * kUnit + 30 + 120);  // the same receiver as that
  CHECK(links.send({1, 0, 1, 500, true, 0}, read) == 6 * kUnit + 30 + 60);
}

TEST_CASE("one request by hand: the engines' first tokens") {
  for (const Engine engine : {Engine::kVllmV1, Engine::kSglang, Engine::kTrtllm}) {
    INFO(config::scheduler_name(engine));
    const Rules rules = rules_apart(engine);
    TransferRules transfer = half_a_unit();
    transfer.block_bytes /= static_cast<double>(kBlock) / static_cast<double>(rules.block);
    // 8 tokens are read from 0 to 1 and sent from 1 to 2.
    const Served one = served_apart({request(0, 8, 4)}, rules, transfer, full_cache(rules.block));
    const Departure& o = one.outcomes[0];
    CHECK((o.scheduled == 0 && o.prefilled == kUnit && o.received == 2 * kUnit));
    CHECK(o.sent_bytes == 1000);
    CHECK(o.reserved == (engine == Engine::kSglang ? 0 : kUnit));
    // vLLM reads the last token again, from 2 to 3; three or four tokens follow.
    CHECK(o.first_token == (engine == Engine::kVllmV1 ? 3 : 2) * kUnit);
    CHECK(o.last_token == o.first_token + 3 * kUnit);
    CHECK(o.replica == 0);
    CHECK(one.seen[1].runs.size() == 1);  // no decodes where prompts are read
    CHECK(one.seen[1].runs[0].read_tokens == 8);
    CHECK(one.seen[1].outcomes.empty());
  }
}

TEST_CASE("a request of one token ends with its prompt, except in vLLM") {
  for (const Engine engine : {Engine::kVllmV1, Engine::kSglang, Engine::kTrtllm}) {
    const Rules rules = rules_apart(engine);
    const Served one = served_apart({request(0, 8, 1)}, rules, half_a_unit(), full_cache(rules.block));
    CHECK(one.outcomes[0].first_token == (engine == Engine::kVllmV1 ? 3 : 1) * kUnit);
  }
}

TEST_CASE("a policy that keeps less sends less") {
  // 16 tokens, of which 4 are kept: 4 blocks take 2 units, one takes half a unit.
  const Rules rules = rules_apart(Engine::kTrtllm);
  const auto with = [&](const FootprintOf& footprint_of) {
    return served_apart({request(0, 16, 4)}, rules, half_a_unit(), footprint_of).outcomes[0];
  };
  const auto evicting = std::make_shared<Evicting>(kBlock, 4, 1, 0);
  const Departure all = with(full_cache(kBlock)), kept = with([&](const traffic::Request&) { return evicting; });
  CHECK((all.sent_bytes == 2000 && kept.sent_bytes == 500));
  CHECK(all.first_token == 3 * kUnit);
  CHECK(kept.first_token == 3 * kUnit / 2);
  // Memory in the host is sent as well.
  const auto offloading = std::make_shared<Evicting>(kBlock, 4, 1, 10);
  CHECK(with([&](const traffic::Request&) { return offloading; }).sent_bytes == 500 + 160);
}

TEST_CASE("memory to decode is asked for before a cache is sent") {
  Rules rules = rules_apart(Engine::kTrtllm);
  rules.blocks = 5;
  // Each needs 3 blocks with its outputs: the second is sent when the first has ended.
  const Served two = served_apart({request(0, 8, 4), request(0, 8, 4)}, rules, half_a_unit(), full_cache(kBlock), 1, 2);
  const Departure &a = two.outcomes[0], &b = two.outcomes[1];
  CHECK((a.prefilled == kUnit && b.prefilled == kUnit));
  CHECK(a.reserved == kUnit);
  CHECK(a.last_token == 5 * kUnit);
  CHECK(b.reserved == 5 * kUnit);
  CHECK(b.received == 6 * kUnit);
}

TEST_CASE("caches wait in pinned memory for the GPU's, and are copied before they run") {
  Rules rules = rules_apart(Engine::kTrtllm);
  rules.blocks = 5;
  rules.link = {1e12, 1e12, 2e12};  // of two blocks a unit
  rules.link_bytes = 500, rules.stored_bytes = 1000;
  const auto two = [&](double staging) {
    rules.staging = staging;
    return served_apart({request(0, 8, 4), request(0, 8, 4)}, rules, half_a_unit(), full_cache(kBlock), 1, 2);
  };
  const Served both = two(4000);
  const Departure &a = both.outcomes[0], &b = both.outcomes[1];
  // Both are sent at once, one after the other. A is copied from 2 to 3 and decodes to 6, when B gets its memory.
  CHECK((a.reserved == kUnit && a.received == 2 * kUnit));
  CHECK((b.reserved == kUnit && b.received == 3 * kUnit));
  CHECK((a.first_token == 3 * kUnit && a.last_token == 6 * kUnit));
  CHECK((b.first_token == 7 * kUnit + 1 && b.last_token == 10 * kUnit + 1));
  // There is room for one: B is sent when A has been copied.
  const Departure later = two(3000).outcomes[1];
  CHECK((later.reserved == 3 * kUnit + 1 && later.received == 4 * kUnit + 1));
  CHECK(later.last_token == 10 * kUnit + 2);
  // There is room for none.
  const Served none = two(1000);
  CHECK((none.outcomes[0].rejected && none.outcomes[1].rejected));
}

TEST_CASE("blocks of a prompt are held until its cache has come") {
  Rules rules = rules_apart(Engine::kVllmV1);
  rules.blocks = 4;
  rules.prefix_caching = false;
  // Two prompts of 3 blocks do not fit where they are read: the second is read once the first has been sent.
  const Served two = served_apart({request(0, 12, 4), request(0, 12, 4)}, rules, half_a_unit(), full_cache(kBlock), 2);
  CHECK(two.outcomes[0].received == 5 * kUnit / 2);
  CHECK(two.outcomes[1].scheduled == 5 * kUnit / 2);
}

TEST_CASE("what a decoder's prefix cache has is not sent") {
  Rules rules = rules_apart(Engine::kVllmV1);
  rules.prefix_caching = true;
  std::vector<traffic::Request> list = {request(0, 16, 4), request(100 * kUnit, 16, 4)};
  for (traffic::Request& one : list) one.content = {{7, 16}};
  const Served two = served_apart(list, rules, half_a_unit(), full_cache(kBlock));
  CHECK(two.outcomes[0].sent_bytes == 2000);
  CHECK(two.outcomes[1].sent_bytes == 500);  // 3 of 4 blocks: the last token is computed here
}

TEST_CASE("a prompt that is read apart finds earlier ones in the host memory of its reader") {
  Rules rules = rules_apart(Engine::kVllmV1);
  rules.prefix_caching = false;
  rules.tiers = {{1e6}};
  rules.link = {1e12, 1e12, 2e12};
  rules.link_bytes = rules.stored_bytes = 500;
  std::vector<traffic::Request> list = {request(0, 16, 4), request(100 * kUnit, 16, 4)};
  for (traffic::Request& one : list) one.content = {{7, 16}};
  const Served two = served_apart(list, rules, half_a_unit(), full_cache(kBlock));
  const Departure &first = two.outcomes[0], &second = two.outcomes[1];
  CHECK((first.loaded_tokens == 0 && first.scheduled == 0));
  // 3 of 4 blocks, each half a unit on the link; the last token is computed. The decoder has no cache: all is sent.
  CHECK(second.loaded_tokens == 12);
  CHECK(second.scheduled == 100 * kUnit + 3 * kUnit / 2 + 1);  // a copy ends with the next picosecond
  CHECK(second.prefilled == second.scheduled + kUnit);
  CHECK(second.sent_bytes == 2000);
}

TEST_CASE("random loads, apart: nothing is lost, and skipped passes change nothing") {
  for (const Engine engine : {Engine::kVllmV1, Engine::kSglang, Engine::kTrtllm}) {
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
      std::vector<Departure> first;
      for (const bool skip : {false, true}) {
        Load load = random_load(engine, seed);
        load.rules.skip = skip;
        load.rules.windows = {};
        load.rules.host_copies = false;
        if (seed % 3 != 0) load.rules.tiers.clear(), load.rules.write_back = false;
        load.rules.link = {1e12 * static_cast<double>(1 + seed % 7), 1e12, 5e13};
        load.rules.link_bytes = load.rules.stored_bytes = 1000;
        if (seed % 2 == 0) load.rules.staging = 1e4 * static_cast<double>(1 + seed % 5);
        // SGLang reserves 512 tokens a request.
        if (engine == Engine::kSglang)
          load.rules.blocks += 600 / load.rules.block * static_cast<std::int64_t>(seed % 3 + 1);
        INFO(config::scheduler_name(engine) << ", seed " << seed << (skip ? ", skipping" : ""));
        Fleet fleet{static_cast<std::int64_t>(1 + seed % 3), static_cast<Routing>(seed % 3)};
        fleet.readers = {static_cast<std::int64_t>(1 + seed % 2), half_a_unit(static_cast<Overlap>(seed / 3 % 3))};
        std::deque<EventRecorder> seen;
        serve_fleet(load.requests, fleet, load.rules, [&](std::int64_t) {
          return ReplicaParts{&load.times, load.footprint_of(), &seen.emplace_back()};
        });
        std::vector<Departure> all;
        for (const EventRecorder& one : seen) all.insert(all.end(), one.outcomes.begin(), one.outcomes.end());
        std::ranges::sort(all, {}, [](const Departure& o) { return o.request.id; });
        CHECK(load.requests.empty());
        REQUIRE(static_cast<std::int64_t>(all.size()) == load.requests.taken());
        for (const Departure& o : all) {
          if (o.rejected) continue;
          CHECK((o.scheduled >= o.request.arrival && o.first_token >= o.prefilled && o.last_token >= o.first_token));
          if (o.received != traffic::kNever) CHECK((o.received >= o.prefilled && o.first_token >= o.received));
        }
        if (!skip) {
          first = all;
          continue;
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
          CHECK((all[i].first_token == first[i].first_token && all[i].last_token == first[i].last_token));
          CHECK((all[i].received == first[i].received && all[i].preemptions == first[i].preemptions));
        }
      }
    }
  }
}

}  // namespace kvcast::tests
