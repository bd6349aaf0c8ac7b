// The policy of docs/new-policy.md, compiled from that page.
#include <catch2/catch.hpp>

#include "policy/policy.hpp"
#include "policy_parts/stages.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::policy::strided {
Descriptor describe();
}  // namespace kvcast::policy::strided

namespace kvcast::tests {
namespace {

TEST_CASE("the policy of the recipe selects the tokens that its page describes") {
  const policy::Descriptor d = policy::strided::describe();
  const auto policy = [&](const std::string& settings) {
    const policy::ParameterValues values(d, config::parse_yaml("{" + settings + "}", "test"));
    policy::Stages stages = d.stages(values);
    return policy::two_stages(std::move(stages.first), std::move(stages.second));
  };
  const MemoryTrace trace = random_trace({.kv_heads = 1, .prompt = 10, .steps = 2}, 1);
  const auto layer = trace.load(0, 1);
  // 11 and 12 tokens: every fourth one, and the last two.
  const auto strided = policy("stride: 4, recent: 2");
  const Selected got = select(*strided, *layer);
  CHECK(got.steps.at(0).heads.at(0).attended == std::vector<std::int32_t>{0, 4, 8, 9, 10});
  CHECK(got.steps.at(1).heads.at(0).attended == std::vector<std::int32_t>{0, 4, 8, 10, 11});
  CHECK(strided->growth({}).attended == 0.25);
  CHECK(select(*policy("stride: 1"), *layer).steps.at(0).heads.at(0).attended.size() == 11);
}

}  // namespace
}  // namespace kvcast::tests
