// Passes over unequal sequences: the work of each kind of policy by hand.
#include <catch2/catch.hpp>

#include "lower/decode.hpp"
#include "policies/all.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "support/tiny_model.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

using policy::HeadCounts;
using policy::Lengths;
using policy::Sequence;

// Requests of 100, 400 and 100 prompt tokens with 20, 20 and 60 expected ones, at contexts of 101, 410 and 150 tokens.
const std::vector<PassSequence> kThree = {{100, 1, {100, 20}}, {409, 1, {400, 20}}, {149, 1, {100, 60}}};

struct Work {
  std::vector<graph::Op> ops;
  std::vector<const graph::Op*> labelled(const std::string& label, int layer) const {
    std::vector<const graph::Op*> all;
    for (const graph::Op& op : ops) {
      if (op.layer == layer && label == op.label) all.push_back(&op);
    }
    return all;
  }
  template <typename W>
  const W& only(const std::string& label) const {
    const auto all = labelled(label, 0);
    REQUIRE(all.size() == 1);
    return std::get<W>(all[0]->work);
  }
  const graph::DecodeAttention& attention() const { return only<graph::DecodeAttention>("attention"); }
};

Work lower_pass(const policy::Policy& policy, std::span<const PassSequence> sequences, std::vector<HeadCounts> counts) {
  const config::Framework framework;
  const PassSetting setting{.framework = &framework, .policy = &policy, .rank = tiny_model()};
  PassSequences pass = pass_of(sequences, policy, setting.rank);
  pass.counts = [&](int) { return std::span<const HeadCounts>(counts); };
  Work work;
  Events events;
  LoweredBlock block(framework, 0, -1, events, work.ops);
  PromptMemory none;
  add_pass(block, setting, pass, none, -1);
  return work;
}

// The same counts for both KV heads of each sequence.
std::vector<HeadCounts> twice(std::initializer_list<HeadCounts> sequences) {
  std::vector<HeadCounts> all;
  for (const HeadCounts& one : sequences) all.insert(all.end(), 2, one);
  return all;
}

TEST_CASE("products see the sum of rows and attention each sequence's own context") {
  const auto full = make("full", "", {100, 20});
  const Work work = lower_pass(*full, kThree, twice({{.attended = 101}, {.attended = 410}, {.attended = 150}}));
  // 2 KV heads · (101 + 410 + 150) tokens; the longest row has 410.
  CHECK(work.attention().rows == 6);
  CHECK(work.attention().tokens == 2 * 661);
  CHECK(work.attention().longest == 410);
  CHECK(work.attention().unequal);
  CHECK_FALSE(work.attention().beside_prompts);
  CHECK(work.only<graph::Gemm>("qkv projection").m == 3);
  CHECK(std::get<graph::Gemm>(work.labelled("head", -1).at(0)->work).m == 3);
}

TEST_CASE("heads of unequal lengths are unequal rows as sequences are") {
  const auto adakv = make("adakv", "budget: 60, window: 8", {100, 20});
  const auto of_heads = [&](std::int64_t one, std::int64_t other) {
    return lower_pass(*adakv, {kThree.data(), 1}, {{.attended = one}, {.attended = other}}).attention();
  };
  CHECK(of_heads(90, 30).tokens == 120);
  CHECK(of_heads(90, 30).longest == 90);
  CHECK(of_heads(90, 30).unequal);
  // 62 tokens are less than a tenth above the mean of 60.
  CHECK_FALSE(of_heads(62, 58).unequal);
}

TEST_CASE("unequal requests hold each its own cache while decoding") {
  const auto full = make("full", "", {100, 20});
  config::Run run;
  run.model = tiny_model();
  run.workload = {400, 20, 3, 0};
  run.framework.page = 16;
  DecodeSetting setting;
  setting.run = &run, setting.rank = run.model, setting.policy = full.get(), setting.lengths = {400, 20};
  setting.shorter.resize(1);
  setting.shorter[0].lengths = {100, 20}, setting.shorter[0].sequences = 2, setting.shorter[0].policy = full.get();
  // Two sequences of 105 tokens and one of 405, 128 bytes a token in each of two layers. 105 lack 7 tokens of a full
  // page, 405 lack 11.
  double cache = 0, lacking = 0;
  for (const policy::MemoryItem& item : decode_memory(setting, 405)) {
    if (item.owner == graph::Owner::kKvCache) cache += item.bytes;
    if (item.owner == graph::Owner::kPartFilledPages) lacking += item.bytes;
  }
  CHECK(cache == 2 * 128 * (2 * 105 + 405));
  CHECK(lacking == 2 * 128 * (2 * 7 + 11));
}

TEST_CASE("quest scores the pages of each sequence") {
  const auto quest = make("quest", "budget: 40, page: 4", {100, 20});
  // 101, 410 and 150 tokens are 26, 103 and 38 pages: 334 of both KV heads, [min | max] of 16 numbers of 2 bytes each.
  const Work work = lower_pass(
      *quest, kThree,
      twice({{.attended = 40, .scored = 26}, {.attended = 40, .scored = 103}, {.attended = 40, .scored = 38}}));
  CHECK(work.only<graph::Kernel>("estimate").read_bytes == 334 * 64);
  const auto& best = work.only<graph::TopK>("top-k");
  CHECK(best.rows == 6);
  CHECK(best.columns == Approx(334.0 / 6));
  CHECK(best.k == 10);
  CHECK(work.attention().tokens == 6 * 40);
}

TEST_CASE("snapkv attends to what is left of each prompt and to the tokens generated since") {
  const auto snapkv = make("snapkv", "budget: 60, window: 8", {100, 20});
  const Lengths lengths[] = {{100, 20}, {400, 20}, {100, 60}};
  const std::int64_t contexts[] = {101, 410, 150};
  // Counts of a replay at 101 tokens: 60 of the prompt and the new one. Each token generated since adds one.
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back({contexts[i], lengths[i]});
  std::vector<HeadCounts> grown;
  grow_counts(*snapkv, sequences, twice({{.attended = 61}, {.attended = 61}, {.attended = 61}}), 101, grown);
  CHECK(grown[0].attended == 61);
  CHECK(grown[5].attended == 61 + 49);
  // A sequence of 400 prompt tokens has its own replay: 60 + 10 tokens at a context of 410.
  grown[2] = grown[3] = {.attended = 70};
  const Work work = lower_pass(*snapkv, kThree, grown);
  CHECK(work.attention().tokens == 2 * (61 + 70 + 110));
  CHECK(work.attention().longest == 110);
}

TEST_CASE("rocketkv reads the pages and dimensions of each sequence's own ratio") {
  const auto rocket = make("rocketkv", "budget: 30, window: 8, max_new_tokens: 0, split_factor: 0", {100, 20});
  // Nothing is evicted, N = S_max: 120, 420 and 160 tokens. c2 = 4, 14 and 5.33: pages of 2, 4 and 3 tokens and
  // ⌊16·p / c2⌋ = 8, 4 and 9 dimensions. Scored: 51, 103 and 50 pages of both KV heads.
  const Work work = lower_pass(
      *rocket, kThree,
      twice({{.attended = 15, .scored = 51}, {.attended = 15, .scored = 103}, {.attended = 15, .scored = 50}}));
  const double read = 2 * (51 * 8 + 103 * 4 + 50 * 9);
  CHECK(work.only<graph::Kernel>("estimate").read_bytes == read * 2);
  CHECK(work.only<graph::TopK>("top-k1 dimensions").k == Approx((8 + 4 + 9) / 3.0));
  // ⌈15 / 2⌉, ⌈15 / 4⌉ and ⌈15 / 3⌉ pages hold the 15 tokens.
  CHECK(work.only<graph::TopK>("top-k").k == Approx((8 + 4 + 5) / 3.0));
  CHECK(work.attention().tokens == 6 * 15);
}

TEST_CASE("freekv recalls the pages that each sequence misses") {
  const auto freekv = make("freekv", "budget: 40, page: 4, speculation: false", {100, 20});
  const Work work = lower_pass(*freekv, kThree,
                               twice({{.attended = 40, .scored = 26, .fetched = 8, .fetched_runs = 2},
                                      {.attended = 40, .scored = 103, .fetched = 0, .fetched_runs = 0},
                                      {.attended = 40, .scored = 38, .fetched = 20, .fetched_runs = 5}}));
  CHECK(work.only<graph::Kernel>("estimate").read_bytes == 334 * 64);
  // 2 KV heads · (8 + 20) tokens · 2 · 32 bytes from the host.
  double h2d = 0;
  for (const graph::Op& op : work.ops) h2d += op.layer == 0 ? graph::traffic_of(op.work).h2d : 0;
  CHECK(h2d == 2 * 28 * 64);
}

TEST_CASE("a mixed pass has the rows of its decodes and of its chunk, and samples where a prompt ends") {
  const auto full = make("full", "", {100, 20});
  std::vector<PassSequence> mixed = {kThree[0], {0, 60, {100, 20}}, kThree[1]};
  const std::vector<HeadCounts> counts = twice({{.attended = 101}, {.attended = 410}});
  const Work work = lower_pass(*full, mixed, counts);
  CHECK(work.only<graph::Gemm>("qkv projection").m == 62);
  CHECK(work.attention().tokens == 2 * 511);
  CHECK(work.attention().beside_prompts);
  // 60·61 / 2 pairs of 4 query heads, both products of 16 dimensions.
  CHECK(work.only<graph::PrefillAttention>("prefill attention").flops == 2.0 * 4 * 2 * 16 * 1830);
  CHECK(std::get<graph::Gemm>(work.labelled("head", -1).at(0)->work).m == 2);
  // The rest of the prompt ends it: the chunk's sequence samples as well.
  mixed[1] = {60, 40, {100, 20}};
  const Work last = lower_pass(*full, mixed, counts);
  CHECK(std::get<graph::Gemm>(last.labelled("head", -1).at(0)->work).m == 3);
  // 40 queries see 60 tokens before the chunk and 40·41 / 2 pairs within it.
  CHECK(last.only<graph::PrefillAttention>("prefill attention").flops == 2.0 * 4 * 2 * 16 * (40 * 60 + 820));
}

}  // namespace
}  // namespace kvcast::tests
