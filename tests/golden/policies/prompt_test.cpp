// Policies that act on the attention over the prompt, by hand.
#include <catch2/catch.hpp>

#include "paper.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

// Zero queries attend evenly: query i gives each of its i + 1 keys 1 / (i + 1).
Paper even(std::int64_t prompt, std::int64_t queries) {
  return {.prompt = prompt,
          .head_dim = 1,
          .keys = std::vector<float>(static_cast<std::size_t>(prompt) + 1, 1.0f),
          .prompt_queries = {std::vector<float>(static_cast<std::size_t>(queries), 0.0f)},
          .queries = {{0}}};
}

policy::PromptAttention prompt_of(const std::string& name, const std::string& parameters, const Paper& paper) {
  const MemoryTrace trace = write_down(paper);
  const auto layer = trace.load(0, 1);
  return make(name, parameters, {paper.prompt, 1})->prompt_attention(policy::LayerInput(*layer));
}

TEST_CASE("minference's a-shape, by hand") {
  // The first key and the last two of each query: 1 2 3 3 3 3 3 3 of 1 2 3 4 5 6 7 8 pairs, 21 of 36.
  const policy::PromptAttention got = prompt_of("minference", "pattern: a_shape, vertical: 1, slash: 2", even(8, 2));
  CHECK(got.sparse);
  CHECK(got.density == Approx(21.0 / 36));
  // The captured queries are 6 and 7: 3 of 7 and 3 of 8 equal weights.
  CHECK(got.recall_mass == Approx((3.0 / 7 + 3.0 / 8) / 2));
}

TEST_CASE("minference's lines are derived from its last 64 queries") {
  CHECK(error_of([] { prompt_of("minference", "", even(70, 63)); }).find("last 64 queries") != std::string::npos);
  // A prompt within the 100 nearest diagonals is computed whole.
  const policy::PromptAttention got = prompt_of("minference", "vertical: 1, slash: 100", even(90, 64));
  CHECK(got.density == 1);
  CHECK(got.recall_mass == Approx(1));
}

TEST_CASE("xattention's blocks, by hand") {
  // Pieces of one token, blocks of two. Queries 4 and 5 weigh keys 1/5 and 1/6 each: blocks 0 and 1 have 2/5 + 2/6 =
  // 0.733, their own 1/5 + 2/6 = 0.533, together 2. The first and the own block hold 1.267: enough for a threshold of
  // 0.6 (1.2), but not of 0.7 (1.4). Queries 2 and 3 have only these two blocks.
  const std::string setting = "stride: 1, tile: 2, threshold: ";
  const policy::PromptAttention got = prompt_of("xattention", setting + "0.6", even(6, 6));
  CHECK(got.density == Approx((21.0 - 4) / 21));  // rows 4 and 5 lack keys 2 and 3
  // Queries 0 … 3 keep all, 4 keeps 3 of 5, 5 keeps 4 of 6.
  CHECK(got.recall_mass == Approx((4 + 3.0 / 5 + 4.0 / 6) / 6));
  CHECK(prompt_of("xattention", setting + "0.7", even(6, 6)).density == 1);
}

TEST_CASE("xattention sums antidiagonals") {
  // Blocks of two tokens, one piece each. Query piece (q4, q5) reversed against key piece (k0, k1): q5·k0 + q4·k1.
  // For q4 = 1, q5 = 0 piece scores are k1, k3, k5 = 0, 9, 0 over stride 2: key piece 1 has nearly all the mass.
  Paper paper = even(6, 6);
  paper.keys = {5, 0, 0, 9, 0, 0, 0};
  paper.prompt_queries = {{0, 0, 0, 0, 1, 0}};
  const std::string setting = "stride: 2, tile: 2, threshold: ";
  // e^{4.5} = 90: key piece 1 holds 90 / 92 = 0.978, the two others 0.022.
  CHECK(prompt_of("xattention", setting + "0.02", paper).density == Approx(17.0 / 21));
  CHECK(prompt_of("xattention", setting + "0.03", paper).density == 1);
  // Not reversed, q4 would meet k0 and k2: 5, 0, 0, and the first piece alone would do.
}

TEST_CASE("xattention requires all prompt queries or a density") {
  CHECK(error_of([] { prompt_of("xattention", "", even(6, 5)); }).find("all prompt queries") != std::string::npos);
  CHECK_FALSE(prompt_of("xattention", "density: 0.25", even(6, 5)).sparse);
}

TEST_CASE("flexprefill's lines, by hand") {
  // Blocks of two. The last two queries weigh keys 1/7 and 1/8 each: block columns have (2/7 + 2/8) / 2 = .268 each,
  // the last one (1/7·0 + 1/8·1 + 1/7 + 1/8) / 2 = .196. Diagonals: .196 (the farthest), then .268 each. Eight lines
  // are less than a block of 128: one column and one diagonal.
  const std::string setting = "tau: 0, tile: 2, min_budget: ";
  const policy::PromptAttention got = prompt_of("flexprefill", setting + "1", even(8, 2));
  CHECK(got.density == Approx((4 * 3 + 3 * 4) / 36.0));       // the main diagonal, and the first column below it
  CHECK(got.recall_mass == Approx((3.0 / 7 + 4.0 / 8) / 2));  // keys 0, 1, 6; keys 0, 1, 6, 7
  // Two columns, 0 and 1, and two diagonals, 0 and, of the equal ones at 1 and 2, the one farther away: all but (3, 2).
  CHECK(prompt_of("flexprefill", setting + "3", even(8, 2)).density == Approx(32.0 / 36));
  CHECK_FALSE(prompt_of("flexprefill", setting + "7", even(8, 2)).sparse);  // eight tokens of least budget
  CHECK_FALSE(prompt_of("flexprefill", setting + "1", even(4, 2)).sparse);  // two blocks
  CHECK(error_of([] { prompt_of("flexprefill", "tile: 2, min_budget: 1", even(8, 7)); }).find("means of all blocks") !=
        std::string::npos);
}

TEST_CASE("flexprefill's query-aware heads take the best pairs of blocks") {
  // Means predict 1/4 for each block of keys, close to .268 .268 .268 .196. Rows of blocks weigh 1, 1/2 1/2, 1/3 …,
  // 1/4 …: at most γ·4 of these, the largest first.
  const auto density = [](const std::string& gamma) {
    return prompt_of("flexprefill", "tile: 2, min_budget: 1, gamma: " + gamma, even(8, 8)).density;
  };
  CHECK(density("0.55") == Approx(24.0 / 36));  // 1 + 1/2 + 1/2, which the lines have already
  CHECK(density("0.8") == Approx(28.0 / 36));   // and all of the third row; (3, 1) and (3, 2) are left out
}

TEST_CASE("retrieval_attention, by hand") {
  // Sink 1, window 2: positions 1 … 5 are in host memory after the prompt.
  Paper paper{.prompt = 8,
              .head_dim = 1,
              .keys = {9, 3, -1, 4, 2, 5, 0, 0, 7, 0},
              .prompt_queries = {},
              .queries = {{1, 1}, {-1, -1}}};
  const std::string setting = "budget: 2, sink: 1, recent: 2";
  const Selected got = select("retrieval_attention", setting, paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 6, 7});
  REQUIRE(got.steps[0].per_query_head);
  // Step 0: position 6 joins the index. Head 0 of 3 −1 4 2 5 0: 5 at 5 and 4 at 3; head 1 of their negatives: 1 at 2, 0
  // at 6.
  CHECK(got.steps[0].heads[0].attended == Positions{0, 3, 5, 7, 8});
  CHECK(got.steps[0].heads[1].attended == Positions{0, 2, 6, 7, 8});
  CHECK(got.steps[0].heads[0].evicted == Positions{6});
  CHECK(got.steps[0].heads[0].counts.cpu_attended == 2);
  CHECK(got.steps[0].heads[0].counts.candidates == 2);  // 2 % of 6, but no fewer than it found
  // Step 1: 7 has left the window, 8 is still in it.
  CHECK(got.steps[1].heads[0].attended == Positions{0, 3, 5, 8, 9});
  CHECK(got.steps[1].heads[1].attended == Positions{0, 2, 6, 8, 9});
  CHECK(select("retrieval_attention", setting + ", scanned: 0.5", paper).steps[0].heads[0].counts.candidates == 3);
  CHECK(select("retrieval_attention", setting + ", index: flat", paper).steps[0].heads[0].counts.candidates == 6);
  // The window does not move; generated tokens stay on the GPU.
  const Selected stays = select("retrieval_attention", setting + ", generated: gpu", paper);
  CHECK(stays.steps[1].heads[0].attended == Positions{0, 3, 5, 6, 7, 8, 9});
  CHECK(stays.steps[1].heads[0].evicted.empty());
}

}  // namespace
}  // namespace kvcast::tests
