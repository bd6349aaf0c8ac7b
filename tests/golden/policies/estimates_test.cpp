// Policies that estimate scores from a few dimensions of queries and keys.
#include <catch2/catch.hpp>
#include <cmath>

#include "paper.hpp"

namespace kvcast::tests {
namespace {

// Query (3, 1): ‖q‖₁ = 4, dimension 0 holds 3 of it, so that logits are 3·k₀ / √(2·3/4) = 3·k₀ / √1.5.
// k₀ = m·ln 2·√1.5 / 3 makes them m·ln 2, with m = 3 0 1 0 2; k₁ = −3·k₀ makes all true scores 0.
Paper powers_of_two() {
  Paper paper{.prompt = 4, .head_dim = 2, .keys = {}, .prompt_queries = {}, .queries = {{3, 1}}};
  for (const float m : {3.0f, 0.0f, 1.0f, 0.0f, 2.0f}) {
    const float k = m * std::log(2.0f) * std::sqrt(1.5f) / 3;
    paper.keys.insert(paper.keys.end(), {k, -3 * k});
  }
  paper.values = {8, 0, 0, 0, 0, 0, 0, 4, 4, 0};
  return paper;
}

TEST_CASE("sparq, by hand") {
  // Budget 1: the two best of 3 0 1 0 2 are tokens 0 and 4.
  const Selected got = select("sparq", "budget: 1, dims: 1", powers_of_two());
  CHECK(got.steps[0].heads[0].attended == Positions{0, 4});
  CHECK(got.steps[0].heads[0].counts.scored == 5);
  // Estimated weights are 8 1 2 1 4 of 16: α = 12/16. True weights are equal: y = ((8,0) + (4,0)) / 2 = (6, 0).
  // v̄ = (12, 4) / 5 = (2.4, 0.8). 0.75·(6, 0) + 0.25·(2.4, 0.8) = (5.1, 0.2).
  const std::vector<float> output = last_output("sparq", "budget: 1, dims: 1", powers_of_two());
  REQUIRE(output.size() == 2);
  CHECK(output[0] == Approx(5.1));
  CHECK(output[1] == Approx(0.2));
  CHECK(last_output("sparq", "budget: 1, dims: 1, mean_value: false", powers_of_two()).empty());
}

TEST_CASE("sparq's local tokens take precedence, by hand") {
  // The last two are 3 and 4; the best of the others is 0: three tokens with budget 2.
  CHECK(select("sparq", "budget: 2, dims: 1, recent: 2", powers_of_two()).steps[0].heads[0].attended ==
        Positions{0, 3, 4});
}

TEST_CASE("sparq under the traffic convention, by hand") {
  // S_max = 5, t = 3: r = round(2·3/5) = 1 dimension, k = 1: two tokens.
  CHECK(select("sparq", "budget: 3, budget_convention: traffic", powers_of_two()).steps[0].heads[0].attended ==
        Positions{0, 4});
  // t = 4: r = round(1.6) = 2 dimensions, k = 2: three tokens.
  CHECK(select("sparq", "budget: 4, budget_convention: traffic", powers_of_two()).steps[0].heads[0].attended.size() ==
        3);
}

TEST_CASE("sparq rounds half a dimension to even, like Python's round") {
  // S_max = 6, t = 3: r = round(5·3/6 = 2.5) = 2: |q| is largest in dimensions 0 and 1. Logits grow with 5·k₀ + 4·k₁: 5
  // 0 2 0 0 0; a third dimension, 3·k₂, would lift token 1 to 6.
  Paper paper{
      .prompt = 5, .head_dim = 5, .keys = std::vector<float>(30), .prompt_queries = {}, .queries = {{5, 4, 3, 0, 0}}};
  paper.keys[0] = 1, paper.keys[5 + 2] = 2, paper.keys[10 + 1] = 0.5f;
  CHECK(select("sparq", "budget: 3, budget_convention: traffic", paper).steps[0].heads[0].attended == Positions{0, 2});
}

TEST_CASE("sparq chooses dimensions by the sum over the group, by hand") {
  // Σ|q| = (3 + 0, 1 + 4) = (3, 5): dimension 1. Logits: head 0 1·k₁ / √(2·1/4), head 1 4·k₁ / √(2·4/4): both grow with
  // k₁: the best two of 0 5 1 5 2 are 1 and 3.
  const Paper paper{.prompt = 4,
                    .head_dim = 2,
                    .keys = {9, 0, 0, 5, 0, 1, 0, 5, 0, 2},
                    .prompt_queries = {},
                    .queries = {{3, 1}, {0, 4}}};
  CHECK(select("sparq", "budget: 1, dims: 1", paper).steps[0].heads[0].attended == Positions{1, 3});
}

TEST_CASE("loki, by hand") {
  // Keys on the line (3, 4)·m: their one principal component is (0.6, 0.8), on which their coordinate is 5·m, and that
  // of a query q is 0.6·q₀ + 0.8·q₁. m = 2 −1 1 −2 and 3 for the current token (calibration sees the prompt alone).
  Paper paper{.prompt = 4, .head_dim = 2, .keys = {}, .prompt_queries = {}, .queries = {{5, 0}, {0, -5}}};
  for (const float m : {2.0f, -1.0f, 1.0f, -2.0f, 3.0f}) paper.keys.insert(paper.keys.end(), {3 * m, 4 * m});
  // Head 0 has the coordinate 3: scores 15·m, best two 4 and 0. Head 1 has −4: scores −20·m, best two 3 and 1.
  const Selected apart = select("loki", "budget: 2, dims: 1, group: per_head", paper);
  REQUIRE(apart.steps[0].heads.size() == 2);
  CHECK(apart.steps[0].heads[0].attended == Positions{0, 4});
  CHECK(apart.steps[0].heads[1].attended == Positions{1, 3});
  CHECK(apart.steps[0].heads[1].counts.scored == 5);
  // Together: (15 − 20)·m = −5·m, as head 1. With the current token forced: it, and the best of the others.
  CHECK(select("loki", "budget: 2, dims: 1", paper).steps[0].heads[0].attended == Positions{1, 3});
  CHECK(select("loki", "budget: 2, dims: 1, recent: 1", paper).steps[0].heads[0].attended == Positions{3, 4});
}

TEST_CASE("loki ranks by the leading component only, by hand") {
  // Around their mean (0, 1) the prompt's keys spread by ±4 along dimension 0 and ±1 along dimension 1: the component
  // is dimension 0. The query (1, 10) has true scores 4+20, −4+20, 4+0, −4+0, 5+0; by dimension 0 the current token's 5
  // is the best, then the two 4, the first of them first.
  const Paper paper{
      .prompt = 4, .head_dim = 2, .keys = {4, 2, -4, 2, 4, 0, -4, 0, 5, 0}, .prompt_queries = {}, .queries = {{1, 10}}};
  CHECK(select("loki", "budget: 2, dims: 1", paper).steps[0].heads[0].attended == Positions{0, 4});
  CHECK(select("loki", "budget: 2, dims: 2", paper).steps[0].heads[0].attended == Positions{0, 1});
}

}  // namespace
}  // namespace kvcast::tests
