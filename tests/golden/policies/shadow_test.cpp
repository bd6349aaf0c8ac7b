// Policies that speculate, or reconstruct keys they do not keep.
#include <catch2/catch.hpp>
#include <cmath>

#include "paper.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

TEST_CASE("shadowkv, by hand") {
  // Chunks of 2 before the last 2 of 9 prompt tokens: (0 1) (2 3) (4 5); 6, 7 and 8 are local. Landmarks (3, 0), (0,
  // 1), (0, 3). Smallest cosines with a key of theirs: 1, 1/√2, 1: chunk 1 is the outlier.
  const Paper paper{.prompt = 9,
                    .head_dim = 2,
                    .keys = {4, 0, 2, 0, 1, 1, -1, 1, 0, 5, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9},
                    .prompt_queries = {{1, 0}},
                    .queries = {{0, 1, 0, 2}}};
  const Selected got = select("shadowkv", "budget: 2, page: 2, recent: 2, outliers: 1, rank: 2", paper);
  // The last prompt query (1, 0) prefers chunk 0; both decode queries prefer chunk 2, which is fetched once.
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3, 6, 7, 8});
  CHECK(got.steps[0].heads[0].attended == Positions{2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(got.steps[0].heads[0].fetched == Positions{4, 5});
  CHECK(got.steps[0].heads[0].evicted == Positions{0, 1});
  CHECK(got.steps[0].heads[0].counts.fetched_runs == 1);
  CHECK(got.steps[0].heads[0].counts.scored == 2);
  CHECK(got.steps[1].heads[0].attended == Positions{2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(got.steps[1].heads[0].fetched.empty());
}

TEST_CASE("shadowkv attends with low-rank keys, by hand") {
  // Before RoPE (one pair, a radian a token) the keys are (2, 0) (2, 0) (0, 1) (0, 1): KᵀK = diag(8, 2), and rank 1
  // keeps the first dimension: tokens 2 and 3 are rebuilt as 0. The current token's key is 0.
  Paper paper{.prompt = 4, .head_dim = 2, .keys = {}, .prompt_queries = {{1, 1}}, .queries = {{-1, -1}}};
  for (int p = 0; p < 4; ++p) {
    const float c = std::cos(static_cast<float>(p)), s = std::sin(static_cast<float>(p));
    const float x = p < 2 ? 2.0f : 0.0f, y = p < 2 ? 0.0f : 1.0f;
    paper.keys.insert(paper.keys.end(), {x * c - y * s, x * s + y * c});
  }
  paper.keys.insert(paper.keys.end(), {0, 0});
  paper.values = {7, 7, 7, 7, 3, 0, 0, 3, 0, 0};
  // Landmarks after RoPE: (1.54, 0.84) and (−0.53, −0.70): the query (−1, −1) takes chunk 1. All scores are 0 with
  // rebuilt keys: the mean of (3, 0), (0, 3), (0, 0).
  const std::string setting = "budget: 2, page: 2, recent: 0, outliers: 0, rank: ";
  CHECK(select("shadowkv", setting + "1", paper).steps[0].heads[0].attended == Positions{2, 3, 4});
  const std::vector<float> low = last_output("shadowkv", setting + "1", paper);
  REQUIRE(low.size() == 2);
  CHECK(low[0] == Approx(1));
  CHECK(low[1] == Approx(1));
  // At full rank keys are unchanged: scores (sin 2 − cos 2) / √2 = 0.9372, (sin 3 − cos 3) / √2 = 0.7998, 0; weights
  // 2.5529, 2.2252, 1 of 5.7781.
  const std::vector<float> whole = last_output("shadowkv", setting + "2", paper);
  CHECK(whole[0] == Approx(3 * 2.5529 / 5.7781).epsilon(1e-3));
  CHECK(whole[1] == Approx(3 * 2.2252 / 5.7781).epsilon(1e-3));
}

TEST_CASE("shadowkv's key factor has the published size of 15 to 30 %") {
  // FreeKV, table 1 and section 2: rank 160 of n_kv·d. 8 KV heads of 128: 160 / 1024 = 15.6 % of the keys, 4 of 128:
  // 160 / 512 = 31.3 %; the other factor adds n_kv·160·128 elements whatever the length, next to nothing at 128K.
  for (const auto& [heads, share] : {std::pair{8, 0.156}, {4, 0.313}}) {
    config::Model model;
    model.layers = 32, model.n_q_heads = 32, model.n_kv_heads = heads, model.head_dim = 128;
    const policy::Lengths lengths{131072, 100};
    const double keys = 32.0 * heads * 131072 * 128 * 2;
    for (const policy::MemoryItem& item : make("shadowkv", "", lengths)->memory({&model, 1, 131072, lengths, 0})) {
      if (graph::owner_name(item.owner) == "low-rank keys") CHECK(item.bytes / keys == Approx(share).margin(0.002));
    }
  }
}

TEST_CASE("infinigen, by hand") {
  // The prompt's queries (8, 0) and (6, 1) are larger in dimension 0: the one column of two that is kept. Scores
  // q₀·k₀ / √2 with q₀ = √2: k₀ itself, 5 4 1 0 of the prompt. Tokens 0 and 1 lie above 5 − 2; at most three quarters
  // of 4.
  const float root = std::sqrt(2.0f);
  const Paper paper{.prompt = 4,
                    .head_dim = 2,
                    .keys = {5, 0, 4, 9, 1, 9, 0, 0, 4.5f, 0, 0, 0},
                    .prompt_queries = {{8, 0, 6, 1}},
                    .queries = {{root, 1, root, 1}}};
  const std::string setting = "partial_ratio: 0.5, max_share: 0.75, skew: false, alpha: ";
  const Selected got = select("infinigen", setting + "2", paper);
  CHECK(got.resident.heads[0].attended.empty());
  CHECK(got.steps[0].heads[0].fetched == Positions{0, 1});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 4});
  CHECK(got.steps[0].heads[0].evicted == Positions{0, 1, 4});
  CHECK(got.steps[0].heads[0].counts.scored == 4);
  // Step 1: the last step's 4.5 is above, too; ⌊0.75·5⌋ = 3.
  CHECK(got.steps[1].heads[0].fetched == Positions{0, 1, 4});
  // Limits: alpha 0 still fetches the best; everything above the threshold is cut to ⌊0.75·4⌋ = 3; with max_share 1,
  // too, all is read.
  CHECK(select("infinigen", setting + "0", paper).steps[0].heads[0].fetched == Positions{0});
  CHECK(select("infinigen", setting + "100", paper).steps[0].heads[0].fetched == Positions{0, 1, 2});
  CHECK(select("infinigen", "max_share: 1, alpha: 100", paper).steps[1].heads[0].attended ==
        Positions{0, 1, 2, 3, 4, 5});
}

TEST_CASE("infinigen's skew finds the direction of the queries, by hand") {
  // All prompt queries lie along (3, 4) / 5: one column holds them. Along it the keys have the coordinates 5, 4 and −5,
  // although the first is 0 in the larger dimension of the query and the second in the other.
  const Paper paper{.prompt = 3,
                    .head_dim = 2,
                    .keys = {25.0f / 3, 0, 0, 5, -3, -4, 0, 0},
                    .prompt_queries = {{3, 4, 6, 8}},
                    .queries = {{3, 4}}};
  const Selected got = select("infinigen", "partial_ratio: 0.5, max_share: 0.34, alpha: 100", paper);
  CHECK(got.steps[0].heads[0].fetched == Positions{0});
  // Unturned, dimension 1 alone is kept: 0, 5, −4.
  CHECK(select("infinigen", "partial_ratio: 0.5, max_share: 0.34, alpha: 100, skew: false", paper)
            .steps[0]
            .heads[0]
            .fetched == Positions{1});
}

TEST_CASE("infinigen without prompt queries is rejected") {
  const Paper paper{.prompt = 2, .head_dim = 1, .keys = {1, 2, 3}, .prompt_queries = {}, .queries = {{1}}};
  CHECK(error_of([&] { select("infinigen", "", paper); }).find("queries") != std::string::npos);
}

}  // namespace
}  // namespace kvcast::tests
