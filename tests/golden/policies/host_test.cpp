// Policies that recall pages from host memory.
#include <catch2/catch.hpp>

#include "paper.hpp"

namespace kvcast::tests {
namespace {

TEST_CASE("arkvale, by hand") {
  // Pages of 2: p0 (5, 1), p1 (2, 8), p2 (4, 3), p3 (0, 0), then p4 filled by two steps. With two keys a cuboid of the
  // mean distance is the box itself.
  const Paper paper{.prompt = 8,
                    .head_dim = 1,
                    .keys = {5, 1, 2, 8, 4, 3, 0, 0, 7, 7},
                    .prompt_queries = {{1}},
                    .queries = {{-1, 1}}};
  // Three pages in all: the current one and two more; both must be chosen (topk 2, no sink).
  const Selected got = select("arkvale", "budget: 6, page: 2, topk: 2", paper);
  // Last prompt query 1: maxima 5, 8, 4 of the pages before the last: p1 and p0 stay with p3.
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3, 6, 7});
  // Step 0, query −1: minus minima −1, −2, −3, 0: p3 and p0. p3 has just left the window and is still resident: no page
  // is recalled, and p1 makes room for p4.
  const policy::HeadSelection& first = got.steps[0].heads[0];
  CHECK(first.attended == Positions{0, 1, 6, 7, 8});
  CHECK(first.fetched.empty());
  CHECK(first.evicted == Positions{2, 3});
  CHECK(first.counts.scored == 4);
  CHECK_FALSE(first.counts.corrected);
  // Step 1, query 1: maxima 5, 8, 4, 0: p1 and p0. p1 comes back in p3's place.
  const policy::HeadSelection& second = got.steps[1].heads[0];
  CHECK(second.attended == Positions{0, 1, 2, 3, 8, 9});
  CHECK(second.fetched == Positions{2, 3});
  CHECK(second.evicted == Positions{6, 7});
  CHECK(second.counts.fetched_runs == 1);
}

TEST_CASE("arkvale attends to all resident pages, not only to the selected ones") {
  const Paper paper{.prompt = 8,
                    .head_dim = 1,
                    .keys = {5, 1, 2, 8, 4, 3, 0, 0, 7, 7},
                    .prompt_queries = {{1}},
                    .queries = {{-1, 1}}};
  // Only one page must be resident; the other slot keeps the better of the resident ones: p3 is chosen at step 0, and
  // of p0 (−1) and p1 (−2) the first stays. At step 1 p1 (8) is chosen, and of p0 (5) and p3 (0) the first stays.
  const Selected got = select("arkvale", "budget: 6, page: 2, topk: 1", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 6, 7, 8});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1, 2, 3, 8, 9});
}

// Sink 0; pages of 2 from position 1: p0 (3, 1), p1 (0, 5), p2 (−2, 2), p3 (4, 4), p4 (1, 1), p5 (6, 6). One dimension:
// the cosine of two queries is 1 or −1.
Paper free_paper() {
  return {.prompt = 10,
          .head_dim = 1,
          .keys = {9, 3, 1, 0, 5, -2, 2, 4, 4, 1, 1, 6, 6},
          .prompt_queries = {},
          .queries = {{1, 1, -1}}};
}

// Budget 7 = sink 1 + window 2 + two pages.
constexpr const char* kFree = "budget: 7, page: 2, sink: 1, recent: 2";

TEST_CASE("freekv, by hand") {
  const Selected got = select("freekv", kFree, free_paper());
  // 10 tokens: 9 after the sink, pages p0 … p3 full and one token over. The window is p3 and that token.
  CHECK(got.resident.heads[0].attended == Positions{0, 7, 8, 9});
  // Step 0, 11 tokens: p0 … p4 full, the window is p4. Query 1, maxima 3, 5, 2, 4: p1 and p3, chosen with its own
  // query. p3 is still resident from the window.
  const policy::HeadSelection& first = got.steps[0].heads[0];
  CHECK(first.attended == Positions{0, 3, 4, 7, 8, 9, 10});
  CHECK(first.fetched == Positions{3, 4});
  CHECK(first.evicted.empty());
  CHECK(first.counts.corrected);
  CHECK(first.counts.scored == 4);
  // Step 1, 12 tokens: one over, window p4 and it. The query has not turned: last step's pages, which its own are, too.
  const policy::HeadSelection& second = got.steps[1].heads[0];
  CHECK(second.attended == Positions{0, 3, 4, 7, 8, 9, 10, 11});
  CHECK(second.fetched.empty());
  CHECK_FALSE(second.counts.corrected);
  // Step 2, 13 tokens: p5 is full and the window, p4 can be chosen. Query −1 has turned: corrected. Minus minima −1, 0,
  // 2, −4, −1: p2 and p1. p2 is recalled; p3, and p4 that left the window, go.
  const policy::HeadSelection& third = got.steps[2].heads[0];
  CHECK(third.attended == Positions{0, 3, 4, 5, 6, 11, 12});
  CHECK(third.fetched == Positions{5, 6});
  CHECK(third.evicted == Positions{7, 8, 9, 10});
  CHECK(third.counts.corrected);
}

TEST_CASE("freekv ranks pages correctly if their weights underflow single precision") {
  // Pages of one token, scores 0 300 0 20 10 5, not scaled: all weights but that of 300 are below e⁻²⁸⁰, 0 in single
  // precision. The best three are 300, 20 and 10.
  const Paper paper{.prompt = 5, .head_dim = 1, .keys = {0, 300, 0, 20, 10, 5}, .prompt_queries = {}, .queries = {{1}}};
  CHECK(select("freekv", "budget: 3, page: 1", paper).steps[0].heads[0].attended == Positions{1, 3, 4});
  // A second head with twice the query gives 300 the same weight and the others less: the order stays.
  const Paper two{
      .prompt = 5, .head_dim = 1, .keys = {0, 300, 0, 20, 10, 5}, .prompt_queries = {}, .queries = {{1}, {2}}};
  CHECK(select("freekv", "budget: 3, page: 1", two).steps[0].heads[0].attended == Positions{1, 3, 4});
}

TEST_CASE("freekv without correction uses the previous query's pages for a turned query") {
  const Selected got = select("freekv", std::string(kFree) + ", correction: false", free_paper());
  const policy::HeadSelection& third = got.steps[2].heads[0];
  CHECK(third.attended == Positions{0, 3, 4, 7, 8, 11, 12});
  // Its own pages are recalled in the background, for the next step.
  CHECK(third.fetched == Positions{5, 6});
  CHECK_FALSE(third.counts.corrected);
}

TEST_CASE("freekv corrects by the pages in common, whatever the queries do") {
  const Selected got = select("freekv", std::string(kFree) + ", identify: pages", free_paper());
  // Step 1 selects what step 0 did. Step 2 selects p1 and p2 after p1 and p3: one of two, below 0.8 of them.
  CHECK_FALSE(got.steps[1].heads[0].counts.corrected);
  CHECK(got.steps[2].heads[0].counts.corrected);
  CHECK(got.steps[2].heads[0].attended == Positions{0, 3, 4, 5, 6, 11, 12});
  // One of two is enough for tau 0.5: step 2 attends to the last step's pages.
  const Selected half = select("freekv", std::string(kFree) + ", identify: pages, tau: 0.5", free_paper());
  CHECK_FALSE(half.steps[2].heads[0].counts.corrected);
  CHECK(half.steps[2].heads[0].attended == Positions{0, 3, 4, 7, 8, 11, 12});
}

TEST_CASE("freekv's window gives up a page while the partial one is more than half full") {
  // Pages of 4 from position 0, window 4 = one page, budget 8: one page is chosen.
  Paper paper{.prompt = 12,
              .head_dim = 1,
              .keys = std::vector<float>(16, 1.0f),
              .prompt_queries = {},
              .queries = {{1, 1, 1, 1}}};
  const Selected got = select("freekv", "budget: 8, page: 4, recent: 4", paper);
  // All scores tie: the first page. 13 and 14 tokens: partial page of 1 and 2, window page 2.
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 2, 3, 8, 9, 10, 11, 12});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1, 2, 3, 8, 9, 10, 11, 12, 13});
  // 15 tokens: a partial page of 3 > 4 / 2 is window enough.
  CHECK(got.steps[2].heads[0].attended == Positions{0, 1, 2, 3, 12, 13, 14});
  // 16 tokens: it is full and the window.
  CHECK(got.steps[3].heads[0].attended == Positions{0, 1, 2, 3, 12, 13, 14, 15});
}

}  // namespace
}  // namespace kvcast::tests
