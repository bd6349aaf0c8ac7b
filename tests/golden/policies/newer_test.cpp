// Methods of 2024 and 2025 that select by expected, repeated or reduced attention.
#include <catch2/catch.hpp>
#include <cmath>

#include "paper.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

const float kRoot2 = std::sqrt(2.0f);

// (x, y) turned by an angle, as rotary embedding turns a vector of two numbers by one radian a position.
std::vector<float> turned(float x, float y, float angle) {
  return {std::cos(angle) * x - std::sin(angle) * y, std::sin(angle) * x + std::cos(angle) * y};
}

TEST_CASE("expected_attention, by hand") {
  // The last query, at position 3, is (√2·ln 2, 0) one position later, where the answer starts: scores k₀·ln 2, weights
  // 8 1 2 4 of 15. Values of norm 1 5 1 1 make them 8 5 2 4.
  Paper paper{.prompt = 4,
              .head_dim = 2,
              .keys = {3, 7, 0, 7, 1, 7, 2, 7, 0, 0},
              .prompt_queries = {turned(kRoot2 * kLn2, 0, -1)},
              .queries = {{0, 0}},
              .values = {1, 0, 3, 4, 0, 1, 1, 0, 9, 9}};
  const std::string setting = "budget: 2, future: 1, queries: 1, sink: ";
  const Selected got = select("expected_attention", setting + "0", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 4});
  CHECK(select("expected_attention", setting + "0, value_norm: false", paper).resident.heads[0].attended ==
        Positions{0, 3});
  CHECK(select("expected_attention", setting + "1", paper).resident.heads[0].attended == Positions{0, 1});
  // Two queries that are ±(2, 0) where the answer starts: mean 0, variance 4 of dimension 0: scores k₀²·4 / 4: the
  // largest of 9 0 1 4.
  std::vector<float> both = turned(2, 0, -2);
  const std::vector<float> last = turned(-2, 0, -1);
  both.insert(both.end(), last.begin(), last.end());
  paper.prompt_queries = {both};
  const std::string spread = "budget: 2, future: 1, queries: 2, sink: 0, value_norm: false";
  CHECK(select("expected_attention", spread, paper).resident.heads[0].attended == Positions{0, 3});
  CHECK_THAT(error_of([&] { select("expected_attention", "budget: 2, sink: 3", paper); }),
             Catch::Contains("exceed the budget"));
}

TEST_CASE("kvzip, by hand") {
  // One piece of 3 tokens, repeated 3 positions later. There the first query is (√2·ln 2, 0): cached keys have weights
  // 1 4 2, its own key (zero) 1: 1/8 1/2 1/4. The other queries are zero: 1/5 each over 3 + 2 keys, 1/6 over 3 + 3.
  // Scores 1/5 1/2 1/4.
  std::vector<float> queries = turned(kRoot2 * kLn2, 0, -3);
  queries.insert(queries.end(), {0, 0, 0, 0});
  const Paper paper{
      .prompt = 3, .head_dim = 2, .keys = {0, 0, 2, 5, 1, 5, 0, 0}, .prompt_queries = {queries}, .queries = {{1, 1}}};
  CHECK(select("kvzip", "budget: 1, sink: 0", paper).resident.heads[0].attended == Positions{1});
  CHECK(select("kvzip", "budget: 2, sink: 0", paper).resident.heads[0].attended == Positions{1, 2});
  CHECK(select("kvzip", "budget: 2, sink: 1", paper).resident.heads[0].attended == Positions{0, 1});
  CHECK(select("kvzip", "budget: 2, sink: 0", paper).steps[0].heads[0].attended == Positions{1, 2, 3});
}

TEST_CASE("kvzap, by hand") {
  // The prompt of KVzip above: scores 1/5 1/2 1/4. The generated token is a zero key with a zero query, repeated once:
  // 1/5 over the four before and its repetition.
  std::vector<float> queries = turned(kRoot2 * kLn2, 0, -3);
  queries.insert(queries.end(), {0, 0, 0, 0});
  const Paper paper{
      .prompt = 3, .head_dim = 2, .keys = {0, 0, 2, 5, 1, 5, 0, 0}, .prompt_queries = {queries}, .queries = {{0, 0}}};
  const auto with = [&](double score, const std::string& rest) {
    return select("kvzap", "threshold: " + std::to_string(std::log(score)) + ", " + rest, paper);
  };
  CHECK(with(0.22, "window: 0").resident.heads[0].attended == Positions{1, 2});
  CHECK(with(0.3, "window: 0").resident.heads[0].attended == Positions{1});
  CHECK(with(0.3, "window: 1").resident.heads[0].attended == Positions{1, 2});
  CHECK(with(0.3, "window: 3").resident.heads[0].attended == Positions{0, 1, 2});
  // The prompt's tokens in its window stay, unless generated tokens push it out.
  CHECK(with(0.3, "window: 1").steps[0].heads[0].attended == Positions{1, 2, 3});
  const Selected pushed = with(0.3, "window: 1, decoding: true");
  CHECK(pushed.steps[0].heads[0].attended == Positions{1, 3});
  CHECK(pushed.steps[0].heads[0].evicted == Positions{2});
  const Selected dropped = with(0.22, "window: 0, decoding: true");
  CHECK(dropped.steps[0].heads[0].attended == Positions{1, 2});
  CHECK(dropped.steps[0].heads[0].evicted == Positions{3});
  CHECK(with(0.19, "window: 0, decoding: true").steps[0].heads[0].attended == Positions{0, 1, 2, 3});
}

TEST_CASE("chunkkv, by hand") {
  // The last query weighs keys of the first head 1 8 2 2 4 4 1: chunks of two have means 4.5 2 4 of 22, and the last
  // one is the window. Both heads keep the same chunks: with 1 1 1 1 8 8 1 of 21 in the second, the third is the best.
  Paper paper{.prompt = 7, .keys = {0, 3, 1, 1, 2, 2, 0, 0}, .prompt_queries = {{kLn2}}, .queries = {{0}}};
  const std::string setting = "window: 1, pool_kernel: 1, chunk: 2, budget: ";
  const Selected got = select("chunkkv", setting + "4", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 6});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 6, 7});
  CHECK(select("chunkkv", setting + "6", paper).resident.heads[0].attended == Positions{0, 1, 4, 5, 6});
  CHECK(select("chunkkv", "window: 1, pool_kernel: 1, chunk: 1, budget: 2", paper).resident.heads[0].attended ==
        Positions{1, 6});
  paper.keys.insert(paper.keys.end(), {0, 0, 0, 0, 3, 3, 0, 0});
  paper.kv_heads = 2, paper.prompt_queries.push_back({kLn2}), paper.queries.push_back({0});
  const Selected both = select("chunkkv", setting + "4", paper);
  CHECK(both.resident.heads[0].attended == Positions{4, 5, 6});
  CHECK(both.resident.heads[1].attended == Positions{4, 5, 6});
  CHECK_THAT(error_of([&] { select("chunkkv", "window: 1, chunk: 3, budget: 8", paper); }),
             Catch::Contains("longer than the window"));
  CHECK_THAT(error_of([&] { select("chunkkv", "window: 4, chunk: 3, budget: 6", paper); }),
             Catch::Contains("holds less than"));
}

TEST_CASE("lagkv, by hand") {
  // Partitions 1 2, 3 4, 5 6. The second spans 0 … 1 in both channels: token 1 does not vary, token 2 by √2. The third
  // spans 0 … 1 and 0 … 2: token 3 does not vary, token 4 is (1, 1/2). Values are all equal.
  Paper paper{.prompt = 7,
              .head_dim = 2,
              .keys = {9, 9, 1, 1, 0, 2, 0, 0, 1, 1, 0, 0, 1, 2, 0, 0},
              .prompt_queries = {},
              .queries = {{0, 0}}};
  const std::string setting = "sink: 1, lag: 2, budget: ";
  const Selected got = select("lagkv", setting + "5", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 2, 4, 5, 6});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 2, 4, 5, 6, 7});
  CHECK(select("lagkv", setting + "4", paper).resident.heads[0].attended == Positions{0, 2, 5, 6});
  CHECK(select("lagkv", setting + "4, recent: 3", paper).resident.heads[0].attended == Positions{0, 4, 5, 6});
  // Values of token 3 are (0, 3), those of 5 and 6 span 0 … 1: 3/√2 outweighs the keys' 1/√8.
  paper.values = {0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1, 1, 0, 0};
  CHECK(select("lagkv", setting + "5", paper).resident.heads[0].attended == Positions{0, 2, 3, 5, 6});
  CHECK_THAT(error_of([&] { select("lagkv", setting + "3", paper); }), Catch::Contains("does not hold"));
}

TEST_CASE("skipkv, by hand") {
  // The last query weighs the keys after the sink 2 4 4 2 1. Of the tokens before the recent one the last three are
  // compared: all point the same way, so that as passages of one token the first two are repeated by the third.
  Paper paper{.prompt = 6, .keys = {3, 1, 2, 2, 1, 0, 0}, .prompt_queries = {{kLn2}}, .queries = {{0}}};
  const std::string setting = "budget: 4, buffer: 2, sink: 1, recent: 1, compared: 3, passage: ";
  const Selected got = select("skipkv", setting + "1", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 4, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 4, 5, 6});
  CHECK(got.steps[0].heads[0].evicted.empty());
  // One passage repeats nothing: the largest weights stay, unless redundancy counts. Mean cosines are 1 1 2 of 3, as
  // each token before another leaves out its last one: 0.29 0.29 0.41 of 1, twice of which outweigh 4 of 13.
  CHECK(select("skipkv", setting + "3", paper).resident.heads[0].attended == Positions{0, 2, 3, 5});
  CHECK(select("skipkv", setting + "3, alpha: 2", paper).resident.heads[0].attended == Positions{0, 1, 2, 5});
  // Six tokens fill the buffer, five do not.
  CHECK(select("skipkv", "budget: 4, buffer: 3, sink: 1, recent: 1", paper).resident.heads[0].attended.size() == 6);
  CHECK_THAT(error_of([&] { select("skipkv", "budget: 4, sink: 3, recent: 2", paper); }),
             Catch::Contains("exceed the budget"));
}

TEST_CASE("criticalkv, by hand") {
  // Weights 4 2 8 1 1 of 16, values of size 1 9 1 5 1. The first stage keeps tokens 4, the window, and 2; the products
  // of the others are 4 18 5.
  Paper paper{.prompt = 5,
              .keys = {2, 1, 3, 0, 0, 0},
              .prompt_queries = {{kLn2}},
              .queries = {{0}},
              .values = {1, 9, 1, 5, 1, 0}};
  const std::string setting = "window: 1, pool_kernel: 1, budget: 4, epsilon: ";
  CHECK(select("criticalkv", setting + "0", paper).resident.heads[0].attended == Positions{1, 2, 3, 4});
  CHECK(select("criticalkv", setting + "0, first_stage: 0.75", paper).resident.heads[0].attended ==
        Positions{0, 1, 2, 4});
  // With 3 in place of 5 the products are 4 18 3; epsilon counts for large values.
  paper.values[3] = -3;
  CHECK(select("criticalkv", setting + "0", paper).resident.heads[0].attended == Positions{0, 1, 2, 4});
  CHECK(select("criticalkv", setting + "1", paper).resident.heads[0].attended == Positions{1, 2, 3, 4});
  CHECK_THAT(error_of([&] { select("criticalkv", "window: 3, budget: 4", paper); }),
             Catch::Contains("fewer than sink"));
  // The first stage keeps the sink, 0, and the window, 4; the products of the others are 18 8 3.
  CHECK(select("criticalkv", setting + "0, sink: 1", paper).resident.heads[0].attended == Positions{0, 1, 2, 4});
  CHECK(select("criticalkv", setting + "0, recent: 2", paper).resident.heads[0].attended == Positions{1, 2, 3, 4});
}

TEST_CASE("rkv, by hand") {
  // Keys a a a b −b, a and b at right angles. Rows of a leave out the last other a: sums of cosines 2 1 0 for a a a; b
  // and −b both have −1. The least redundant of the first four are 3 and 2; 4 is the window.
  Paper paper{.prompt = 5,
              .head_dim = 2,
              .keys = {1, 0, 1, 0, 1, 0, 0, 1, 0, -1, 5, 5, 5, 5, 5, 5},
              .prompt_queries = {{-1, 0}},
              .queries = {{1, 1, 1, 1, 1, 1}}};
  const std::string setting = "budget: 3, buffer: 2, window: 1, pool_kernel: 1, lambda: ";
  const Selected got = select("rkv", setting + "0", paper);
  CHECK(got.resident.heads[0].attended == Positions{2, 3, 4});
  // Four tokens at the first step; five at the second, which fill the buffer: three stay.
  CHECK(got.steps[0].heads[0].attended == Positions{2, 3, 4, 5});
  CHECK(got.steps[0].heads[0].evicted.empty());
  CHECK(got.steps[1].heads[0].attended == Positions{2, 3, 4, 5, 6});
  CHECK(got.steps[1].heads[0].evicted.size() == 2);
  CHECK(got.steps[2].heads[0].attended.size() == 4);
  CHECK(select("rkv", setting + "0, sink: 1", paper).resident.heads[0].attended == Positions{0, 3, 4});
  // Selection by importance alone: the query turns from a to b; the first of the equal a.
  CHECK(select("rkv", setting + "1", paper).resident.heads[0].attended == Positions{0, 3, 4});
  CHECK_THAT(error_of([&] { select("rkv", "budget: 3, window: 3", paper); }),
             Catch::Contains("must be smaller than the budget"));
}

TEST_CASE("rkv finds the last similar key at any distance") {
  // 600 tokens: ten of a, 589 of b, and one of c, all at right angles. Each row leaves out the last other key of its
  // own: sums of cosines are 9 for the first eight of a, then 8 and 0; 588 for b, then 587 and 0.
  Paper paper{.prompt = 600, .head_dim = 3, .keys = {}, .prompt_queries = {{1, 0, 0}}, .queries = {{1, 0, 0}}};
  for (int i = 0; i < 601; ++i) {
    for (int j = 0; j < 3; ++j) paper.keys.push_back(j == (i < 10 ? 0 : i < 599 ? 1 : 2) ? 1.0f : 0.0f);
  }
  const auto kept = [&](int budget) {
    const std::string setting = "window: 1, pool_kernel: 1, lambda: 0, budget: " + std::to_string(budget) +
                                ", buffer: " + std::to_string(600 - budget);
    return select("rkv", setting, paper).resident.heads[0].attended;
  };
  CHECK(kept(3) == Positions{9, 598, 599});
  CHECK(kept(4) == Positions{8, 9, 598, 599});
  CHECK(kept(13) == Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 597, 598, 599});
}

TEST_CASE("double_sparsity, by hand") {
  // Σ|k| of the prompt is 11 in channel 0 and 9 in channel 1; scores by channel 0 are 4 −4 2 1 3.
  const Paper paper{.prompt = 4,
                    .head_dim = 2,
                    .keys = {4, 0, -4, 9, 2, 0, 1, 0, 3, 0},
                    .prompt_queries = {{1, 5}},
                    .queries = {{1, 5}}};
  const std::string setting = "budget: 2, channels: 1, window: 1, calibrate_on: ";
  const Selected got = select("double_sparsity", setting + "k", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{0, 4});
  CHECK(got.steps[0].heads[0].counts.scored == 5);
  // The query is larger in channel 1: scores 0 45 0 0 0; of equal ones the first.
  CHECK(select("double_sparsity", setting + "q", paper).steps[0].heads[0].attended == Positions{0, 1});
  // It is that of the last prompt token, whose key is (1, 0): products 1 and 0, although 11·1 < 9·5.
  CHECK(select("double_sparsity", setting + "qk", paper).steps[0].heads[0].attended == Positions{0, 4});
  // A prompt shorter than the window is used in full.
  Paper whole = paper;
  whole.prompt_queries = {{1, 5, 1, 5, 1, 5, 1, 5}};
  const char* const longer = "budget: 2, channels: 1, window: 32, calibrate_on: q";
  CHECK(select("double_sparsity", longer, whole).steps[0].heads[0].attended == Positions{0, 1});
}

TEST_CASE("infllm_v2, by hand") {
  // Means of pairs: 0 4 0 1; the current token alone is in block 4, the last one. The block of the largest mean is 1,
  // although 2 holds the largest key.
  const Paper paper{
      .prompt = 8, .head_dim = 1, .keys = {0, 0, 8, 0, -9, 9, 1, 1, 0}, .prompt_queries = {}, .queries = {{1}}};
  const std::string setting = "budget: 4, page: 2, kernel: 2, sink: 0, recent: 0, dense_below: 0, stride: ";
  const Selected got = select("infllm_v2", setting + "2", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{2, 3, 8});
  CHECK(got.steps[0].heads[0].counts.scored == 4);
  // A mean from every token on: 0 4 4 −4.5 0 5 1 .5; tokens 5 and 6 have 5, and lie in blocks 2 and 3: the first.
  CHECK(select("infllm_v2", setting + "1", paper).steps[0].heads[0].attended == Positions{4, 5, 8});
  // A local window of one block comes on top of the block in progress, both within the budget.
  const char* const local = "budget: 6, page: 2, kernel: 2, stride: 2, sink: 0, recent: 2, dense_below: 0";
  CHECK(select("infllm_v2", local, paper).steps[0].heads[0].attended == Positions{2, 3, 6, 7, 8});
  CHECK(select("infllm_v2", "budget: 4, page: 2, sink: 0, recent: 1", paper).steps[0].heads[0].attended.size() == 9);
  CHECK_THAT(error_of([&] { select("infllm_v2", "budget: 2, page: 2, sink: 2, recent: 2, dense_below: 0", paper); }),
             Catch::Contains("leaves none to select"));
}

// One dimension, keys in units of ln 2: a query of 1 gives weights that are powers of 2.
Paper powers(std::vector<float> keys, std::vector<std::vector<float>> queries) {
  Paper paper;
  paper.prompt = static_cast<std::int64_t>(keys.size() - queries[0].size());
  for (const float key : keys) paper.keys.push_back(key * kLn2);
  paper.queries = std::move(queries);
  return paper;
}

TEST_CASE("seer_attention, by hand") {
  // Weights 4 1 2 2 8 of 17: blocks of two have 4 2 8. Block 0 has 4 of 14.
  const Paper paper = powers({2, 0, 1, 1, 3}, {{1}});
  CHECK(select("seer_attention", "budget: 4, page: 2", paper).steps[0].heads[0].attended == Positions{0, 1, 4});
  CHECK(select("seer_attention", "budget: 4, page: 2, threshold: 0.3", paper).steps[0].heads[0].attended ==
        Positions{4});
  CHECK(select("seer_attention", "budget: 4, page: 2, threshold: 0.28", paper).steps[0].heads[0].attended ==
        Positions{0, 1, 4});
  // Weights 4 1 2 2 and a half: the last block is read on top of the best two.
  const Paper low = powers({2, 0, 1, 1, -1}, {{1}});
  CHECK(select("seer_attention", "budget: 4, page: 2, threshold: 0.001", low).steps[0].heads[0].attended ==
        Positions{0, 1, 2, 3, 4});
  CHECK(select("seer_attention", "budget: 2, page: 2", low).steps[0].heads[0].attended == Positions{0, 1, 4});
}

TEST_CASE("twilight, by hand") {
  // The three best have weights 8 4 2 of 14.
  const Paper paper = powers({3, 2, 0, 1, 0}, {{1}});
  const auto attended = [&](const char* p) {
    const Selected got = select("twilight", std::string("selector: {name: exact_topk, budget: 3}, p: ") + p, paper);
    CHECK(got.steps[0].heads[0].counts.candidates == 3);
    return got.steps[0].heads[0].attended;
  };
  CHECK(attended("0.5") == Positions{0});
  CHECK(attended("0.6") == Positions{0, 1});
  CHECK(attended("0.9") == Positions{0, 1, 3});
  CHECK(attended("0") == Positions{0});
}

TEST_CASE("omnikv, by hand") {
  // Queries 1 and −1. Weights of the prompt 8 1 1/2 4 of 13.5, and 1/8 1 2 1/4 of 3.375: the largest are .59 .30 .59
  // .30. Raw scores: 3 0 1 2.
  const Paper paper = powers({3, 0, -1, 2, 5}, {{1}, {-1}});
  const Selected got = select("omnikv", "budget: 2", paper);
  CHECK(got.resident.heads[0].attended.empty());
  CHECK(got.steps[0].heads[0].attended == Positions{0, 2, 4});
  CHECK(got.steps[0].heads[0].fetched == Positions{0, 2});
  CHECK(got.steps[0].heads[0].evicted == Positions{0, 2});
  const Selected raw = select("omnikv", "budget: 2, group: max_scores, place: gpu", paper);
  CHECK(raw.resident.heads[0].attended.size() == 4);
  CHECK(raw.steps[0].heads[0].attended == Positions{0, 3, 4});
  CHECK(raw.steps[0].heads[0].fetched.empty());
}

TEST_CASE("specprefill reads the chunks that look-ahead tokens attend to") {
  // Query 1 weighs the prompt 8 1 | 1/2 4 | 2 2 of 17.5, query −2 1/64 1 | 4 1/16 | 1/4 1/4 of 5.58: chunks have .257
  // .129 .114 and .091 .364 .045.
  const Paper paper = powers({3, 0, -1, 2, 1, 1, 9, 9}, {{1, -2}});
  const auto read = [&](const std::string& setting) {
    return select("specprefill", "chunk: 2, pool_kernel: 1, " + setting, paper).resident.heads[0].attended;
  };
  CHECK(read("budget: 2, look_ahead: 1") == Positions{0, 1});
  CHECK(read("budget: 2, look_ahead: 2") == Positions{2, 3});
  CHECK(read("budget: 3, look_ahead: 1") == Positions{0, 1, 2, 3});  // rounded up
  CHECK(read("budget: 5").size() == 6);
  const Selected got = select("specprefill", "chunk: 2, pool_kernel: 1, budget: 2", paper);
  CHECK(got.steps[1].heads[0].attended == Positions{2, 3, 6, 7});
  // Weights 0 0 | 8 0 | 1 1/2; sums over three neighbours 0 8 | 8 9 | 1.5 1.5.
  const Paper near = powers({-9, -9, 3, -9, 0, -1, 9}, {{1}});
  const auto pooled = [&](const char* kernel) {
    return select("specprefill", std::string("chunk: 2, budget: 4, pool_kernel: ") + kernel, near)
        .resident.heads[0]
        .attended;
  };
  CHECK(pooled("1") == Positions{2, 3, 4, 5});
  CHECK(pooled("3") == Positions{0, 1, 2, 3});
  // The largest of two heads: .457 .179 | .717 .229 | .114 .114.
  const Paper two = powers({3, 0, -1, 2, 1, 1, 9}, {{1}, {-2}});
  CHECK(select("specprefill", "chunk: 2, pool_kernel: 1, budget: 2", two).resident.heads[0].attended ==
        Positions{2, 3});
}

TEST_CASE("nsa adds the weights of the runs in a block, and reads a window besides") {
  // Runs of two keys, one every key: means of 8 8 | 2 2 | 0 4 | 0 0 | 0 in ln 2. Their weights: 256 32 4 2 4 4 1 1 of
  // 304. A run counts once for each of its keys in a block: 2·256 + 32, 32 + 2·4 + 2, 2 + 2·4 + 4, …
  const Paper paper = powers({8, 8, 2, 2, 0, 4, 0, 0, 0}, {{1}});
  const auto read = [&](const std::string& setting) {
    return select("nsa", "page: 2, kernel: 2, stride: 1, " + setting, paper).steps[0].heads[0].attended;
  };
  CHECK(read("budget: 4, sink: 0, recent: 0, window: 0") == Positions{0, 1, 8});
  CHECK(read("budget: 6, sink: 0, recent: 0, window: 0") == Positions{0, 1, 2, 3, 8});
  CHECK(read("budget: 6, sink: 2, recent: 2, window: 0") == Positions{0, 1, 6, 7, 8});
  CHECK(read("budget: 4, sink: 0, recent: 0, window: 4") == Positions{0, 1, 5, 6, 7, 8});
  CHECK(read("budget: 9, sink: 0, recent: 0, window: 1").size() == 9);
  CHECK(error_of([&] { read("budget: 4, sink: 2, recent: 2, window: 0"); }).find("2 blocks") != std::string::npos);
}

TEST_CASE("first and last tokens come before others, within the budget") {
  // Weights 4 1 2 2 8.
  const Paper paper = powers({2, 0, 1, 1, 3}, {{1}});
  const auto read = [&](const char* name, const std::string& setting) {
    return select(name, setting, paper).steps[0].heads[0].attended;
  };
  for (const auto& [name, setting] : {std::pair{"dsa", "budget: 2"},
                                      {"loki", "budget: 2, dims: 1"},
                                      {"double_sparsity", "budget: 2, channels: 1, label_bits: 16, calibrate_on: k"},
                                      {"sparq", "budget: 1, dims: 1"}}) {
    CAPTURE(name);
    CHECK(read(name, setting) == Positions{0, 4});
    CHECK(read(name, setting + std::string(", sink: 2")) == Positions{0, 1});
    CHECK(read(name, setting + std::string(", recent: 2")) == Positions{3, 4});
    CHECK(read(name, setting + std::string(", sink: 1, recent: 1")) == Positions{0, 4});
    CHECK(error_of([&, n = name, s = setting] { read(n, s + std::string(", sink: 2, recent: 1")); }) != "no error");
  }
  // Blocks of two have 4 2 8; the last one is not full.
  for (const char* const name : {"seer_attention", "msa"}) {
    const std::string setting = name[0] == 's' ? "budget: 4, page: 2" : "budget: 4, block: 2";
    CAPTURE(name);
    CHECK(read(name, setting) == Positions{0, 1, 4});
    CHECK(read(name, setting + ", recent: 2") == Positions{2, 3, 4});
    CHECK(error_of([&] { read(name, setting + ", sink: 1, recent: 2"); }).find("up to 3 pages") != std::string::npos);
  }
  CHECK(read("seer_attention", "budget: 4, page: 2, threshold: 0.3, sink: 1") == Positions{0, 1, 4});
  // Groups of two have means 5/2 and 2; the token of the open one is read in any case.
  CHECK(read("qsa", "budget: 2, block: 2, recent: 1") == Positions{0, 1, 4});
  CHECK(read("qsa", "budget: 2, block: 2, recent: 2") == Positions{2, 3, 4});
}

TEST_CASE("retroinfer, by hand") {
  // Segments of 2 with one cluster each: centroids 3 1 −1. The first is read, the second counts as two tokens of weight
  // 2 and value 7.5, the third is left out: (16·1 + 4·0 + 1·10 + 4·7.5) / 25.
  Paper paper = powers({4, 2, 1, 1, 0, -2, 0}, {{1}});
  paper.values = {1, 0, 5, 10, 100, 100, 10};
  const std::string setting = "sink: 0, recent: 0, segment: 2, cluster_tokens: 2, retrieved: 0.3, estimated: 0.3";
  const Selected got = select("retroinfer", setting, paper);
  CHECK(got.resident.heads[0].attended.empty());
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 6});
  CHECK(got.steps[0].heads[0].fetched == Positions{0, 1});
  CHECK(got.steps[0].heads[0].counts.fetched_runs == 1);
  CHECK(got.steps[0].heads[0].counts.scored == 3);
  CHECK(got.steps[0].heads[0].counts.candidates == 1);
  CHECK(last_output("retroinfer", setting, paper)[0] == Approx(56.0 / 25));
}

}  // namespace
}  // namespace kvcast::tests
