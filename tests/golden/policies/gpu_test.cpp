// Policies that keep all data on the GPU.
#include <catch2/catch.hpp>
#include <cmath>

#include "paper.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

// One dimension, so that scores are products of two numbers. Six prompt tokens, two decode steps.
Paper digits(std::vector<std::vector<float>> queries) {
  return {.prompt = 6,
          .head_dim = 1,
          .keys = {3, 1, 4, 1, 5, 9, 2, 6},
          .prompt_queries = {},
          .queries = std::move(queries)};
}

TEST_CASE("full, by hand") {
  const Selected got = select("full", "", digits({{1, 1}}));
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3, 4, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 2, 3, 4, 5, 6});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("exact_topk, by hand") {
  // Step 0, query 1, tokens 3 1 4 1 5 9 2: the best are 9 at 5, 5 at 4, 4 at 2.
  // Step 1, query −1, tokens 3 1 4 1 5 9 2 6: the best are −1 at 1 and at 3, −2 at 6.
  const Selected got = select("exact_topk", "budget: 3", digits({{1, -1}}));
  CHECK(got.steps[0].per_query_head);
  CHECK(got.steps[0].heads[0].attended == Positions{2, 4, 5});
  CHECK(got.steps[1].heads[0].attended == Positions{1, 3, 6});
  CHECK(got.steps[1].heads[0].counts.scored == 8);
  // The first token and the last one are always selected, which leaves one other: 9 at 5, then −1 at 1.
  const Selected held = select("exact_topk", "budget: 3, sink: 1, recent: 1", digits({{1, -1}}));
  CHECK(held.steps[0].heads[0].attended == Positions{0, 5, 6});
  CHECK(held.steps[1].heads[0].attended == Positions{0, 1, 7});
}

TEST_CASE("exact_topk with a group of opposite queries, by hand") {
  // Keys times ln 2 make powers of 2. Head 0 (query 1): 8 2 16 2 32 512 4, sum 576. Head 1 (query −1): 1/8 1/2 1/16 1/2
  // 1/32 1/512 1/4, sum 1.4707.
  Paper paper = digits({{1, 1}, {-1, -1}});
  for (float& key : paper.keys) key *= kLn2;
  // Weights of head 0: .0139 .0035 .0278 .0035 .0556 .8889 .0069; of head 1: .0850 .3400 .0425 .3400 .0212 .0013 .1700.
  // Sums: .0989 .3434 .0703 .3434 .0768 .8902 .1769: the best three are 5, 1, 3.
  CHECK(select("exact_topk", "budget: 3, group: sum_weights", paper).steps[0].heads[0].attended == Positions{1, 3, 5});
  // Sums of raw scores are 0 everywhere: the first three.
  CHECK(select("exact_topk", "budget: 3, group: sum_scores", paper).steps[0].heads[0].attended == Positions{0, 1, 2});
  // The larger of k and −k is k: as head 0 alone.
  CHECK(select("exact_topk", "budget: 3, group: max_scores", paper).steps[0].heads[0].attended == Positions{2, 4, 5});
  const Selected apart = select("exact_topk", "budget: 2", paper);
  REQUIRE(apart.steps[0].heads.size() == 2);
  CHECK(apart.steps[0].heads[0].attended == Positions{4, 5});
  CHECK(apart.steps[0].heads[1].attended == Positions{1, 3});
}

TEST_CASE("dsa, by hand") {
  // Keys times ln 2. Step 0, queries 1 and -1: the heads' weights sum to .0989 .3434 .0703 .3434 .0768 .8902 .1769, as
  // in exact_topk's group above: the best three are 5, 1 and 3. Step 1, queries 1 and 0: head 1 adds an eighth to each,
  // and head 0 decides: 512 at 5, 64 at 7, 32 at 4.
  Paper paper = digits({{1, 1}, {-1, 0}});
  for (float& key : paper.keys) key *= kLn2;
  const Selected got = select("dsa", "budget: 3", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3, 4, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{1, 3, 5});
  CHECK(got.steps[0].heads[0].counts.scored == 7);
  CHECK(got.steps[1].heads[0].attended == Positions{4, 5, 7});
  CHECK(got.steps[1].heads[0].fetched.empty());
}

TEST_CASE("hisparse fetches misses into a buffer with LRU replacement, by hand") {
  // A buffer of 4 starts with tokens 0 to 3. Step 0 (query 1) chooses 9 at 5 and 5 at 4, for which 0 and 1 go. Step 1
  // (query -1) chooses the ones at 1 and 3: 1 is fetched, and 2, which no step has used, goes. The newest tokens, 6 and
  // 7, leave their slot at the end of their step.
  const Selected got = select("hisparse", "budget: 2, spare: 2", digits({{1, -1}}));
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3});
  CHECK(got.steps[0].heads[0].attended == Positions{4, 5});
  CHECK(got.steps[0].heads[0].fetched == Positions{4, 5});
  CHECK(got.steps[0].heads[0].evicted == Positions{0, 1, 6});
  CHECK(got.steps[1].heads[0].attended == Positions{1, 3});
  CHECK(got.steps[1].heads[0].fetched == Positions{1});
  CHECK(got.steps[1].heads[0].counts.fetched_runs == 1);
  CHECK(got.steps[1].heads[0].evicted == Positions{2, 7});
  // Token 4 is the best of all, read from its own slot as the newest and fetched a step later.
  const Paper last{.prompt = 4, .head_dim = 1, .keys = {0, 1, 0, 0, 9, 0}, .prompt_queries = {}, .queries = {{1, 1}}};
  const Selected newest = select("hisparse", "budget: 1, spare: 1", last);
  CHECK(newest.steps[0].heads[0].attended == Positions{4});
  CHECK(newest.steps[0].heads[0].fetched.empty());
  CHECK(newest.steps[1].heads[0].attended == Positions{4});
  CHECK(newest.steps[1].heads[0].fetched == Positions{4});
  // While the sequence fits, every token stays.
  const Selected all = select("hisparse", "budget: 1, spare: 5", last);
  CHECK(all.steps[1].heads[0].fetched.empty());
  CHECK(all.steps[1].heads[0].evicted.empty());
}

TEST_CASE("msa reads the blocks of the best tokens, and the last one, by hand") {
  // Blocks of two of 3 1 4 1 5 9 2: the last is certain, the one of 9 is the best. Query -1 over 3 1 4 1 5 9 2 6: both
  // first blocks have a 1, and the earlier one is read.
  Paper paper = digits({{1, -1}});
  for (float& key : paper.keys) key *= kLn2;
  const Selected got = select("msa", "budget: 4, block: 2", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{4, 5, 6});
  CHECK(got.steps[0].heads[0].counts.scored == 7);
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1, 6, 7});
  // Each KV head chooses for itself: the second one has its best token first.
  paper.keys.insert(paper.keys.end(), {9, 0, 0, 0, 0, 0, 0, 0});
  paper.kv_heads = 2, paper.queries.push_back({1, 1});
  const Selected both = select("msa", "budget: 4, block: 2", paper);
  CHECK(both.steps[0].heads[0].attended == Positions{4, 5, 6});
  CHECK(both.steps[0].heads[1].attended == Positions{0, 1, 6});
  CHECK_THAT(error_of([&] { select("msa", "budget: 1, block: 2", paper); }), Catch::Contains("less than one block"));
}

TEST_CASE("qsa reads the best groups, and the tokens of the open one beside them, by hand") {
  // Groups of two: 5 9 is the best of three, 2 is in the open one. Query -1: the weights 2^-k of 3 1 sum to .625, those
  // of 4 1 to .5625; no group is open.
  Paper paper = digits({{1, -1}});
  for (float& key : paper.keys) key *= kLn2;
  const Selected got = select("qsa", "budget: 2, block: 2", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{4, 5, 6});
  CHECK(got.steps[0].heads[0].counts.scored == 3);
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1});
  CHECK(got.steps[1].heads[0].counts.scored == 4);
}

TEST_CASE("dsa's heads share one set of tokens, by hand") {
  // Weights of head 0: 8 1 1 of 10, of head 1: 1 1 4 of 6; sums .97 .27 .77, so that both read 0.
  Paper paper{.prompt = 2, .keys = {3, 0, 0, 0, 0, 2}, .prompt_queries = {}, .queries = {{1}, {1}}, .kv_heads = 2};
  for (float& key : paper.keys) key *= kLn2;
  const Selected got = select("dsa", "budget: 1", paper);
  REQUIRE(got.steps[0].heads.size() == 2);
  CHECK(got.steps[0].heads[0].attended == Positions{0});
  CHECK(got.steps[0].heads[1].attended == Positions{0});
}

TEST_CASE("streaming_llm, by hand") {
  // Sink 0 1, window of 3 ending at the current token; tokens that leave it are evicted before attention.
  const Selected got = select("streaming_llm", "sink: 2, recent: 3", digits({{1, 1}}));
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 3, 4, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 4, 5, 6});
  CHECK(got.steps[0].heads[0].evicted == Positions{3});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1, 5, 6, 7});
  CHECK(got.steps[1].heads[0].evicted == Positions{4});
}

// Window of two queries, both 1. Row at position 4 sees exponentials 4 1 2 1 1 (sum 9), row at 5 sees 4 1 2 1 1 1 (sum
// 10). Scores of positions 0 … 3: 4, 1, 2, 1 times (1/9 + 1/10) = .844 .211 .422 .211.
Paper observed() {
  Paper paper{.prompt = 6, .head_dim = 1, .keys = {2, 0, 1, 0, 0, 0, 0}, .prompt_queries = {{1, 1}}, .queries = {{1}}};
  for (float& key : paper.keys) key *= kLn2;
  return paper;
}

TEST_CASE("snapkv, by hand") {
  // The best one, and the window; then the generated token.
  const Selected got = select("snapkv", "budget: 3, window: 2, pool_kernel: 1", observed());
  CHECK(got.resident.heads[0].attended == Positions{0, 4, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 4, 5, 6});
  CHECK(got.steps[0].heads[0].evicted.empty());
  // The sink takes both tokens before the window, or recent tokens one.
  const std::string four = "budget: 4, window: 2, pool_kernel: 1, ";
  CHECK(select("snapkv", four + "sink: 2", observed()).resident.heads[0].attended == Positions{0, 1, 4, 5});
  CHECK(select("snapkv", four + "recent: 3", observed()).resident.heads[0].attended == Positions{0, 3, 4, 5});
}

TEST_CASE("snapkv's pooling spreads importance to neighbours, by hand") {
  // Maximum over 3: .844 .844 .422 .422. Two picks: 0 and 1; three: and 2, which ties with 3.
  CHECK(select("snapkv", "budget: 4, window: 2, pool_kernel: 3", observed()).resident.heads[0].attended ==
        Positions{0, 1, 4, 5});
  CHECK(select("snapkv", "budget: 5, window: 2, pool_kernel: 3", observed()).resident.heads[0].attended ==
        Positions{0, 1, 2, 4, 5});
  // Average over 3 with zeros beyond: (0 + .844 + .211)/3 = .352, (.844 + .211 + .422)/3 = .493, .281, .211. One
  // pick: 1.
  CHECK(select("snapkv", "budget: 3, window: 2, pool: avg, pool_kernel: 3", observed()).resident.heads[0].attended ==
        Positions{1, 4, 5});
}

TEST_CASE("blasst, by hand") {
  // Tiles of 2: scores 0 1 | 3 0 | 1 1 and the generated 2, times ln 2. At step 0 each tile is compared with the
  // largest before it: 0, then 3 above 1, 1 below 3 by 2, 2 below 3 by 1: e to the differences is 4, 1/4 and 1/2.
  const Paper paper{.prompt = 6,
                    .head_dim = 1,
                    .keys = {0, kLn2, 3 * kLn2, 0, kLn2, kLn2, 2 * kLn2},
                    .prompt_queries = {},
                    .queries = {{1}}};
  const auto at = [&](double threshold) {
    return select("blasst", fmt::format("scale_prefill: 0, tile: 2, scale_decode: {}", 7 * threshold), paper)
        .steps[0]
        .heads[0]
        .attended;
  };
  CHECK(at(0.2) == Positions{0, 1, 2, 3, 4, 5, 6});
  CHECK(at(0.3) == Positions{0, 1, 2, 3, 6});
  CHECK(at(0.6) == Positions{0, 1, 2, 3});
  // A second query head of the group, whose third tile is half of its largest, makes the kernel read that too.
  Paper two = paper;
  two.queries = {{1}, {-1}};
  CHECK(select("blasst", "scale_prefill: 0, tile: 2, scale_decode: 2.8", two).steps[0].heads[0].attended ==
        Positions{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("gsa, by hand") {
  // One dimension, so that the matrix is 1 or −1 and a code is a sign: distance 0 from keys of the query's sign. Blocks
  // of 2 whose keys are − −, + −, − −, + +, and the generated token, −.
  const Paper paper{
      .prompt = 8, .head_dim = 1, .keys = {-1, -2, 3, -1, -1, -4, 2, 1, -7}, .prompt_queries = {}, .queries = {{1}}};
  const auto reads = [&](const std::string& rest) {
    return select("gsa", "page: 2, dense_below: 0, " + rest, paper).steps[0].heads[0];
  };
  // The nearest two, of which the first comes first; then the last block, which is not full, is certain.
  CHECK(reads("budget: 4, sink: 0, recent: 0").attended == Positions{2, 3, 6, 7});
  CHECK(reads("budget: 4, sink: 0, recent: 1").attended == Positions{2, 3, 8});
  CHECK(reads("budget: 6, sink: 1, recent: 1").attended == Positions{0, 1, 2, 3, 8});
  CHECK(reads("budget: 4, sink: 0, recent: 0").counts.scored == 9);
  CHECK(select("gsa", "page: 2, budget: 4, sink: 0, recent: 0, dense_below: 9", paper)
            .steps[0]
            .heads[0]
            .attended.size() == 9);
  // The mean of a group is hashed: 3 and −1.
  Paper two = paper;
  two.queries = {{3}, {-1}};
  CHECK(select("gsa", "page: 2, dense_below: 0, budget: 4, sink: 0, recent: 0", two).steps[0].heads[0].attended ==
        Positions{2, 3, 6, 7});
  CHECK_THAT(error_of([&] { reads("budget: 4, sink: 1, recent: 2"); }), Catch::Contains("up to 3 pages"));
}

TEST_CASE("quest, by hand") {
  // Pages of 2: (1, 4), (−3, 2), (0, 1): the last is partial at the end of the prompt and full at step 0.
  const Paper paper{
      .prompt = 5, .head_dim = 1, .keys = {1, 4, -3, 2, 0, 1, 9}, .prompt_queries = {}, .queries = {{1, -1}}};
  const Selected got = select("quest", "budget: 4, page: 2", paper);
  // Step 0, query 1: maxima 4, 2, 1: pages 0 and 1.
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 2, 3});
  CHECK(got.steps[0].heads[0].counts.scored == 3);
  // Step 1, query −1: minus minima −1, 3, 0, −9 (token 6 alone in page 3): pages 1 and 2.
  CHECK(got.steps[1].heads[0].attended == Positions{2, 3, 4, 5});
  // The runtime's rule keeps the last page and lets one other in: page 1.
  CHECK(select("quest", "budget: 4, page: 2, force_last_page: true", paper).steps[1].heads[0].attended ==
        Positions{2, 3, 6});
  // So does a window of one token. With a sink token, whose page is 0, no page is left to choose.
  CHECK(select("quest", "budget: 4, page: 2, recent: 1", paper).steps[1].heads[0].attended == Positions{2, 3, 6});
  CHECK(select("quest", "budget: 4, page: 2, sink: 1, recent: 1", paper).steps[1].heads[0].attended ==
        Positions{0, 1, 6});
  // The sink's page leaves two of three: 1 and 2.
  CHECK(select("quest", "budget: 6, page: 2, sink: 2", paper).steps[1].heads[0].attended ==
        Positions{0, 1, 2, 3, 4, 5});
  // Under the traffic convention 6 tokens give pages of ⌈7 / 6⌉ = 2; half of them are ⌊3 / 2⌋ = 1 page. 2 tokens give
  // pages of 4, and half of them pays for the first token of the best page.
  CHECK(select("quest", "budget: 6, budget_convention: traffic", paper).steps[1].heads[0].attended == Positions{2, 3});
  CHECK(select("quest", "budget: 2, budget_convention: traffic", paper).steps[0].heads[0].attended == Positions{0});
  // The last page is cut to fill 3 tokens: the third is from the next best page for query −1, page 2 (minus minimum 0).
  CHECK(select("quest", "budget: 6, budget_convention: traffic_tokens", paper).steps[1].heads[0].attended ==
        Positions{2, 3, 4});
}

// Fourteen prompt tokens of four dimensions, two steps; only dimensions 0 and 1 are used.
Paper rockets() {
  Paper paper{.prompt = 14, .head_dim = 4, .keys = std::vector<float>(64, 0.0f), .prompt_queries = {}, .queries = {}};
  const auto put = [&](std::size_t token, std::size_t dimension, float value) {
    paper.keys[token * 4 + dimension] = value;
  };
  put(4, 0, 2);    // page 2
  put(7, 1, -4);   // page 3
  put(10, 0, 1);   // page 5
  put(11, 1, -1);  // page 5
  put(15, 0, 3);   // page 7, at step 1
  return paper;
}

TEST_CASE("hsa, by hand") {
  Paper paper = rockets();
  paper.queries = {{3, -2, 1, 0, 3, -2, 1, 0}};
  // t = 4: c2 = 16/4 = 4, p = 2, k1 = 4·2/4 = 2: dimensions 0 (positive: maxima) and 1 (negative: minima). k2 = 2
  // tokens. Page scores 3·max₀ − 2·min₁: page 2: 6, page 3: 8, page 5: 3 + 2 = 5, page 7 at step 1: 9, others 0.
  const Selected got = select("hsa", "budget: 4", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{6, 7});
  CHECK(got.steps[0].heads[0].counts.scored == 8);  // 15 tokens
  CHECK(got.steps[1].heads[0].attended == Positions{14, 15});
  // t = 6: c2 = 16/6 = 2.67, p = 2, k1 = ⌊4·2/2.67⌋ = 3: dimension 2 adds nothing. k2 = 3: page 7, and of page 3 the
  // first.
  CHECK(select("hsa", "budget: 6", paper).steps[1].heads[0].attended == Positions{6, 14, 15});
  // Step 0 sees 15 tokens, t = 15 covers them: everything. Step 1 sees 16: c2 = 16/15, p = 1, k1 = 3, k2 = 7 tokens:
  // 15 (9), 7 (8), 4 (6), 10 (3), 11 (2), then ties at 0: 0 and 1.
  const Selected wide = select("hsa", "budget: 15", paper);
  CHECK(wide.steps[0].heads[0].attended.size() == 15);
  CHECK(wide.steps[1].heads[0].attended == Positions{0, 1, 4, 7, 10, 11, 15});
}

TEST_CASE("rocketkv, by hand") {
  Paper paper = rockets();
  paper.queries = {{3, -2, 1, 0, 3, -2, 1, 0}};
  paper.prompt_queries = {{3, -2, 0, 0, 3, -2, 0, 0}};
  // t = 4: c = 4, r = 0.2 + 0.06·2 = 0.32, N = ⌊16 / 4^0.32⌋ = ⌊10.27⌋ = 10; T_max = 2, so the prompt keeps 8: the
  // window 12 13 and six of 0 … 11. Scores 3·k₀ − 2·k₁: token 4: 6, 7: 8, 10: 3, 11: 2, others 0: those four, then 0
  // and 1.
  const std::string common = "budget: 4, window: 2, pool_kernel: 1";
  const Selected got = select("rocketkv", common, paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 4, 7, 10, 11, 12, 13});
  // c2 = 10/4 = 2.5, p = 2, k1 = ⌊4·2/2.5⌋ = 3. Pages of the remaining tokens: (0 1) (4 7) (10 11) (12 13) (14 15).
  // (4 7) has max₀ = 2 and min₁ = −4: 6 + 8 = 14, the best at both steps; k2 = 2 tokens.
  CHECK(got.steps[0].heads[0].attended == Positions{4, 7});
  CHECK(got.steps[0].heads[0].counts.scored == 5);
  CHECK(got.steps[1].heads[0].attended == Positions{4, 7});
  // RocketKV-MT decodes in the same way but frees no memory.
  const Selected mt = select("rocketkv_mt", common, paper);
  CHECK(mt.resident.heads[0].attended.size() == 14);
  CHECK(mt.steps[0].heads[0].attended == Positions{4, 7});
}

}  // namespace
}  // namespace kvcast::tests
