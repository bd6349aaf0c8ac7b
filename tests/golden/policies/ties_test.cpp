// Equal scores: the lower position comes first, under policies whose estimates a second implementation cannot reproduce
// to the last bit (tests/outside compares the ties of the others).
#include <catch2/catch.hpp>

#include "paper.hpp"

namespace kvcast::tests {
namespace {

// Eight prompt tokens and one generated token, all with the same key and value.
Paper equal_tokens() {
  return {.prompt = 8,
          .head_dim = 2,
          .keys = std::vector<float>(18, 1),
          .prompt_queries = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
          .queries = {{1, 1}},
          .values = std::vector<float>(18, 1)};
}

TEST_CASE("of tokens with equal estimates those at lower positions are read") {
  // sparq reads one token more than its budget.
  const auto read = [](const char* policy, const std::string& setting) {
    return select(policy, setting, equal_tokens()).steps[0].heads[0].attended;
  };
  CHECK(read("sparq", "budget: 2, dims: 1") == Positions{0, 1, 2});
  CHECK(read("loki", "budget: 3, dims: 1, recent: 0") == Positions{0, 1, 2});
  CHECK(read("double_sparsity", "budget: 3, channels: 1") == Positions{0, 1, 2});
  CHECK(read("exact_topk", "budget: 3") == Positions{0, 1, 2});
}

TEST_CASE("of tokens with equal scores those at lower positions are kept") {
  // Two tokens are kept besides the last, where a window holds it.
  const auto kept = [](const char* policy, const std::string& setting) {
    return select(policy, setting, equal_tokens()).resident.heads[0].attended;
  };
  CHECK(kept("keydiff", "budget: 2") == Positions{0, 1});
  CHECK(kept("expected_attention", "budget: 2, sink: 0") == Positions{0, 1});
  CHECK(kept("kvzip", "budget: 2, sink: 0") == Positions{0, 1});
  CHECK(kept("snapkv", "budget: 3, window: 1, pool_kernel: 1") == Positions{0, 1, 7});
  CHECK(kept("criticalkv", "budget: 3, window: 1, pool_kernel: 1") == Positions{0, 1, 7});
}

}  // namespace
}  // namespace kvcast::tests
