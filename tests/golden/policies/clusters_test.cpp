// Policies that read clusters of keys.
#include <catch2/catch.hpp>
#include <cmath>

#include "paper.hpp"

namespace kvcast::tests {
namespace {

// Query whose logits against a centroid (x, y) are ln 2·(a·x + b·y): the 1 / √2 of two dimensions taken out.
std::vector<float> logits_of(std::vector<float> weights) {
  for (float& x : weights) x *= std::sqrt(2.0f) * std::log(2.0f);
  return weights;
}

TEST_CASE("squeezed_attention, by hand") {
  // The last two of six prompt tokens are the window. The others lie in two directions: cluster A, tokens 0 and 2, mean
  // (3, 0); cluster B, tokens 1 and 3, mean (0, 2).
  const Paper paper{.prompt = 6,
                    .head_dim = 2,
                    .keys = {2, 0, 0, 1, 4, 0, 0, 3, 5, 5, 5, 5, 5, 5, 5, 5},
                    .prompt_queries = {logits_of({1.0f / 3, 0, 1.0f / 3, 0})},
                    .queries = {logits_of({0, 0.5f, 1.0f / 3, 0})}};
  // Threshold: both window queries give A 2 and B 1 before division by 2·2 + 2·1 = 6: A 1/3, B 1/6. Over the four keys:
  // 1/6 1/6 1/3 1/3; their median lies half way between, at 1/4.
  // Step 0 gives A 1 and B 2: B 2/6 > 1/4 > 1/6: tokens 1 and 3. Step 1, like the window, A.
  const Selected got = select("squeezed_attention", "window: 2, centroid_share: 0.5, sparsity: 0.5", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3, 4, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{1, 3, 4, 5, 6});
  CHECK(got.steps[0].heads[0].counts.scored == 2);
  CHECK(got.steps[0].heads[0].counts.candidates == 4);
  CHECK(got.steps[1].heads[0].attended == Positions{0, 2, 4, 5, 6, 7});
  // The two limits: at 0 everything is read; at 1 the threshold is the largest score, 1/3, which no score exceeds.
  CHECK(select("squeezed_attention", "window: 2, sparsity: 0", paper).steps[1].heads[0].attended.size() == 8);
  CHECK(select("squeezed_attention", "window: 2, centroid_share: 0.5, sparsity: 1", paper).steps[0].heads[0].attended ==
        Positions{4, 5, 6});
}

}  // namespace
}  // namespace kvcast::tests
