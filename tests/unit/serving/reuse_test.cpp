// Later requests find content that a policy has kept, and content behind the GPU.
#include <catch2/catch.hpp>

#include "random_load.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

// Passes take 1000 and 10 for each token that is read.
EventRecorder serve_listed(const Rules& rules, const std::vector<traffic::Request>& requests,
                           const std::shared_ptr<const Footprint>& footprint) {
  ListedRequests source(requests);
  LinearTimes times;
  times.base = 1000, times.read = 10;
  EventRecorder seen;
  serve(
      source, times, rules, [&](const traffic::Request&) { return footprint; }, seen);
  return seen;
}

traffic::Request with(traffic::Request request, std::vector<traffic::Segment> content, std::uint64_t answer = 0) {
  request.content = std::move(content);
  request.answer_key = answer;
  return request;
}

Rules small(Engine engine, std::int64_t blocks) {
  Rules rules = Rules::of(engine);
  rules.max_num_batched_tokens = 1000;
  rules.block = 4;
  rules.blocks = blocks;
  rules.in_flight = 1;
  return rules;
}

// A block takes 100 of the link's time.
Rules with_host(Rules rules, double blocks) {
  rules.link = {1e13, 1e13, 2e13};
  rules.link_bytes = rules.stored_bytes = 1000;
  rules.tiers = {{blocks * 1000}};
  return rules;
}

// A, then two prompts that go on after its answer.
std::vector<traffic::Request> continued_twice() {
  const std::vector<traffic::Segment> turn{{1, 20}, {9, 5}, {2, 7}};
  return {with(request(0, 20, 5), {{1, 20}}, 9), with(request(10'000, 32, 2), turn, 10),
          with(request(20'000, 32, 2), turn, 10)};
}

}  // namespace

TEST_CASE("what a policy keeps serves one continuation") {
  const Engine engine = GENERATE(Engine::kVllmV1, Engine::kSglang);
  CAPTURE(config::scheduler_name(engine));
  // It keeps 8 tokens of a prompt, and all that follow: 12 of the 24 tokens that A has when it ends.
  const auto footprint = std::make_shared<Evicting>(4, 8, 1, 0.0);
  Rules rules = small(engine, 100);
  rules.reuse = Reuse::kChain;
  const EventRecorder seen = serve_listed(rules, continued_twice(), footprint);
  CHECK(seen.of(0).first_token == 1200);
  CHECK(seen.of(1).hit_tokens == 24);
  CHECK(seen.of(1).first_token == 10'000 + 1000 + 10 * (32 - 24));
  CHECK(seen.of(2).hit_tokens == 0);
  CHECK(seen.of(2).first_token == 20'000 + 1000 + 10 * 32);
  rules.reuse = Reuse::kNone;
  CHECK(serve_listed(rules, continued_twice(), footprint).of(1).first_token == 11'320);
  rules.reuse = Reuse::kRadix;  // nothing is kept whole
  CHECK(serve_listed(rules, continued_twice(), footprint).of(1).first_token == 11'320);
}

TEST_CASE("layers with a window need the last blocks of a prefix alone") {
  // Blocks of 4 tokens; 8 tokens, in 2 blocks, are in the window of a block's first. A is read 8 tokens a pass: what
  // has left the window after 16 and 24 tokens is given back, and the pool of 14 has no others left for the last two
  // blocks than those of tokens 0 to 7.
  Rules rules = small(Engine::kVllmV1, 14);
  rules.max_num_batched_tokens = 8;
  rules.windows = {1, 1, 9};
  const auto footprint = std::make_shared<FullCache>(4);
  const auto hit = [&](std::int64_t shared) {
    return serve_listed(
               rules,
               {with(request(0, 32, 1), {{1, 32}}), with(request(100'000, shared + 4, 1), {{1, shared}, {2, 4}})},
               footprint)
        .of(1)
        .hit_tokens;
  };
  CHECK(hit(8) == 0);
  CHECK(hit(12) == 0);
  CHECK(hit(16) == 16);
  CHECK(hit(20) == 20);
  CHECK(hit(28) == 28);
  rules.windows = {};
  CHECK(hit(8) == 8);
}

TEST_CASE("where answers have no name, a prompt goes on after the last part of an earlier one") {
  // Traces name the content of prompts alone.
  const auto footprint = std::make_shared<Evicting>(4, 8, 1, 0.0);
  Rules rules = small(Engine::kVllmV1, 100);
  rules.reuse = Reuse::kChain;
  const EventRecorder seen =
      serve_listed(rules,
                   {with(request(0, 22, 5), {{1, 16}, {2, 6}}), with(request(10'000, 32, 2), {{1, 16}, {3, 16}}),
                    with(request(20'000, 32, 2), {{4, 16}, {3, 16}})},
                   footprint);
  CHECK(seen.of(1).hit_tokens == 16);
  CHECK(seen.of(1).first_token == 10'000 + 1000 + 10 * 16);
  CHECK(seen.of(2).hit_tokens == 0);
}

TEST_CASE("the decodes of a continuation count what was kept") {
  struct Lengths final : StepTimes {
    std::vector<Decoding> decodes;
    std::vector<Chunk> chunks;
    StepTime time(std::span<const Decoding> d, std::span<const Chunk> c) override {
      decodes.insert(decodes.end(), d.begin(), d.end());
      chunks.insert(chunks.end(), c.begin(), c.end());
      return {1000, 0, 1};
    }
  } times;
  auto requests = continued_twice();
  requests.pop_back();
  ListedRequests source(requests);
  Rules rules = small(Engine::kVllmV1, 100);
  rules.reuse = Reuse::kChain;
  rules.skip = false;
  EventRecorder seen;
  const auto footprint = std::make_shared<Evicting>(4, 8, 1, 0.0);
  serve(
      source, times, rules, [&](const traffic::Request&) { return footprint; }, seen);
  // 12 tokens are kept of 24; 8 are read; one is generated after the first.
  CHECK(times.chunks.back().cached == 12);
  CHECK(times.chunks.back().added == 8);
  CHECK(times.chunks.back().known == 20);
  CHECK(times.decodes.back().known == 20);
  CHECK(times.decodes.back().tokens == 21);
}

TEST_CASE("requests take the blocks of what is kept") {
  const auto footprint = std::make_shared<Evicting>(4, 8, 1, 0.0);
  Rules rules = small(Engine::kVllmV1, 10);
  rules.reuse = Reuse::kChain;
  auto requests = continued_twice();
  // 32 tokens take 8 of the 10 blocks, of which 3 hold what A has left.
  requests[1] = request(5'500, 32, 1);
  CHECK(serve_listed(rules, requests, footprint).of(2).hit_tokens == 0);
  requests[1] = request(5'500, 28, 1);  // 7 blocks
  CHECK(serve_listed(rules, requests, footprint).of(2).hit_tokens == 24);
  // A copy in the host outlives that: 3 blocks.
  requests[1] = request(5'500, 32, 1);
  const EventRecorder seen = serve_listed(with_host(rules, 3), requests, footprint);
  CHECK(seen.of(2).hit_tokens == 24);
  CHECK(seen.of(2).loaded_tokens == 24);
  CHECK(seen.of(2).first_token == 20'000 + 301 + 1000 + 10 * 8);
  CHECK(serve_listed(with_host(rules, 2), requests, footprint).of(2).hit_tokens == 0);
}

namespace {

// A has 5 blocks; B takes the unused ones of the 10 and four of A's; C begins with A's prompt.
std::vector<traffic::Request> evicting() {
  return {with(request(0, 20, 1), {{1, 20}}), with(request(50'000, 36, 1), {{2, 36}}),
          with(request(100'000, 24, 1), {{1, 20}})};
}

}  // namespace

TEST_CASE("blocks come back from the host while others run") {
  const auto full = std::make_shared<FullCache>(4);
  Rules rules = small(Engine::kVllmV1, 10);
  CHECK(serve_listed(rules, evicting(), full).of(2).hit_tokens == 4);
  rules.write_back = GENERATE(false, true);
  CAPTURE(rules.write_back);
  const EventRecorder seen = serve_listed(with_host(rules, 100), evicting(), full);
  CHECK(seen.of(2).hit_tokens == 20);
  CHECK(seen.of(2).loaded_tokens == 16);
  CHECK(seen.of(2).first_token == 100'000 + 401 + 1000 + 10 * 4);
  // D arrives with it and is read while its blocks are copied.
  auto requests = evicting();
  requests.push_back(request(100'000, 4, 1));
  const EventRecorder both = serve_listed(with_host(rules, 100), requests, full);
  CHECK(both.of(3).first_token == 100'000 + 1040);
  CHECK(both.of(2).first_token == 100'000 + 1040 + 1040);
}

TEST_CASE("without a cache of the GPU's, vLLM finds what lies behind it") {
  const auto full = std::make_shared<FullCache>(4);
  Rules rules = small(Engine::kVllmV1, 100);
  const std::vector<traffic::Request> requests{with(request(0, 16, 1), {{1, 16}}),
                                               with(request(100'000, 20, 1), {{1, 16}})};
  CHECK(serve_listed(rules, requests, full).of(1).first_token == 100'000 + 1040);
  rules.prefix_caching = false;
  CHECK(serve_listed(rules, requests, full).of(1).first_token == 100'000 + 1200);
  const EventRecorder behind = serve_listed(with_host(rules, 100), requests, full);  // four blocks take 400 of the link
  CHECK(behind.of(1).loaded_tokens == 16);
  CHECK(behind.of(1).first_token == 100'000 + 400 + 1 + 1040);
}

TEST_CASE("passes wait for copies, before and after") {
  const auto full = std::make_shared<FullCache>(4);
  Rules rules = with_host(small(Engine::kVllmV1, 100), 100);
  rules.prefix_caching = false, rules.blocking_copies = true;
  const EventRecorder seen = serve_listed(
      rules, {with(request(0, 16, 5), {{1, 16}}, 9), with(request(100'000, 28, 1), {{1, 16}, {9, 5}})}, full);
  // Four blocks are stored, 100 each; later four are loaded, and three that are read are stored: the answer was not.
  CHECK(seen.of(0).first_token == 1000 + 10 * 16 + 400);
  CHECK(seen.of(1).loaded_tokens == 16);
  CHECK(seen.of(1).first_token == 100'000 + 400 + 1000 + 10 * 12 + 300);
}

TEST_CASE("storage is read before its blocks cross the link") {
  const auto full = std::make_shared<FullCache>(4);
  Rules rules = with_host(small(Engine::kVllmV1, 10), 2);  // too small: it drops A's blocks
  // 100 a block to read, and 7 until the first bytes come.
  rules.tiers.push_back({1e9, 1e13, 1e13, 7e-12});
  const EventRecorder seen = serve_listed(rules, evicting(), full);
  CHECK(seen.of(2).loaded_tokens == 16);
  CHECK(seen.of(2).first_token == 100'000 + 407 + 1040);
}

TEST_CASE("SGLang loads layer by layer in the pass that needs the blocks") {
  const auto full = std::make_shared<FullCache>(16);
  Rules rules = with_host(small(Engine::kSglang, 10), 100);
  rules.block = 16;
  const auto requests = [] {
    return std::vector<traffic::Request>{with(request(0, 80, 1), {{1, 80}}), with(request(50'000, 144, 1), {{2, 144}}),
                                         with(request(100'000, 96, 1), {{1, 80}})};
  }();
  // The tree drops A's 5 blocks as one node. They take 500, less than the pass.
  EventRecorder seen = serve_listed(rules, requests, full);
  CHECK(seen.of(2).loaded_tokens == 80);
  CHECK(seen.of(2).first_token == 100'000 + 1000 + 10 * 16);
  rules.link.in = 1e12;  // 5000: the pass waits for its last layer's
  CHECK(serve_listed(rules, requests, full).of(2).first_token == 100'000 + 5000);
}

TEST_CASE("the copies that a policy has in the host serve prefixes") {
  // 8 tokens stay on the GPU, and all in the host, a block of 4 tokens 1000 bytes.
  const auto footprint = std::make_shared<Evicting>(4, 8, 0, 250.0);
  Rules rules = with_host(small(Engine::kVllmV1, 100), 20);
  rules.host_copies = true;
  rules.host_bytes = 20'000;
  const std::vector<traffic::Request> requests{with(request(0, 40, 1), {{1, 40}}),
                                               with(request(50'000, 44, 1), {{1, 40}})};
  EventRecorder seen = serve_listed(rules, requests, footprint);
  CHECK(seen.of(1).loaded_tokens == 40);
  CHECK(seen.of(1).first_token == 50'000 + 1001 + 1000 + 10 * 4);
  // The second needs 11.25 blocks for itself: with 20 there is room for 8 of the first's 10, whose last ones are
  // dropped.
  CHECK(seen.of(1).hit_tokens == 40);
  rules.reuse = Reuse::kNone;
  CHECK(serve_listed(rules, requests, footprint).of(1).first_token == 50'000 + 1440);
}

namespace {

// Prompts that walk down a tree of content, as conversations and system prompts do.
std::vector<traffic::Request> tree_walks(int count, std::uint64_t seed) {
  Draws draw(seed);
  std::vector<traffic::Request> requests;
  for (int i = 0; i < count; ++i) {
    traffic::Request one = request(i * 1'000'000, 0, 1);
    std::uint64_t key = 0;
    do {
      key = key * 3 + static_cast<std::uint64_t>(draw.between(1, 3));
      one.content.push_back({key, 4});
    } while (draw.chance(0.85) && one.content.size() < 12);
    one.prompt_tokens = 4 * std::ssize(one.content) + draw.between(1, 3);  // and a part that nobody shares
    requests.push_back(std::move(one));
  }
  return requests;
}

// Blocks that are found in a list of all blocks, the one that was given back first in front: a request takes what it
// finds and then the first ones, and gives back its last block first.
std::int64_t naive_hits(const std::vector<traffic::Request>& requests, std::size_t blocks) {
  std::vector<std::uint64_t> list(blocks, 0);  // 0: no content
  std::int64_t hits = 0;
  for (const traffic::Request& one : requests) {
    std::vector<std::uint64_t> held;
    for (const traffic::Segment& segment : one.content) {  // the key of a node tells the way to it
      const auto at = std::ranges::find(list, segment.key);
      if (at == list.end()) break;
      held.push_back(*at);
      list.erase(at);
    }
    hits += std::ssize(held);
    for (std::size_t i = held.size(); i <= one.content.size(); ++i) {
      held.push_back(i < one.content.size() ? one.content[i].key : 0);
      list.erase(list.begin());
    }
    list.insert(list.end(), held.rbegin(), held.rend());
  }
  return hits;
}

std::int64_t hit_blocks(const EventRecorder& seen) {
  std::int64_t tokens = 0;
  for (const Departure& outcome : seen.outcomes) tokens += outcome.hit_tokens;
  return tokens / 4;
}

}  // namespace

TEST_CASE("hits fall with memory as a naive list of blocks says") {
  const std::vector<traffic::Request> requests = tree_walks(2000, 5);
  std::set<std::uint64_t> different;
  std::int64_t all = 0;
  for (const traffic::Request& one : requests) {
    for (const traffic::Segment& segment : one.content) different.insert(segment.key), ++all;
  }
  const std::int64_t ideal = all - std::ssize(different);  // all but the first time
  const auto full = std::make_shared<FullCache>(4);
  std::int64_t before = 0;
  for (const std::int64_t blocks : {20, 60, 200, 1000, 20'000}) {
    const std::int64_t hits = hit_blocks(serve_listed(small(Engine::kVllmV1, blocks), requests, full));
    CHECK(hits == naive_hits(requests, static_cast<std::size_t>(blocks)));
    CHECK(hits > before);
    before = hits;
  }
  CHECK(before == ideal);
  // A host cache without end finds what a pool without end does.
  const Rules rules = with_host(small(Engine::kVllmV1, 60), 1e9);
  CHECK(hit_blocks(serve_listed(rules, requests, full)) == ideal);
}

}  // namespace kvcast::tests
