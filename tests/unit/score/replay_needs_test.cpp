// The sample traces that a replay needs follow from the policy: methods.yaml must not contradict it.
#include "policies/replay_needs.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "policies/all.hpp"
#include "score/catalogue.hpp"
#include "synth/recipe.hpp"

namespace kvcast::tests {

using namespace score;

namespace {

policy::ReplayNeeds needs_of(const std::string& text, std::int64_t prompt = 16384) {
  const config::PolicyChoice choice = config::read_policy(config::parse_yaml(text, "test"));
  return policy::replay_needs(policy::find_policy(choice.name), choice.parameters, {prompt, 16});
}

TEST_CASE("methods of papers are replayed as their policies need") {
  int seen = 0;
  const Catalogue catalogue;
  for (const MethodSpec& method : catalogue.methods()) {
    if (!method.refused.empty()) continue;
    config::PolicyChoice choice = config::read_policy(method.policy);
    if (method.row_block) choice.parameters = choice.parameters.with("block", config::Node::scalar("128", {}));
    CAPTURE(choice.name, choice.parameters.canonical());
    const policy::ReplayNeeds needs =
        policy::replay_needs(policy::find_policy(choice.name), choice.parameters, {16384, 16});
    CHECK(needs.coupled == method.coupled);
    // A sparse prompt alone: the entry's source states that the simulation does not show its loss.
    const bool sparse = choice.name == "minference" || choice.name == "xattention";
    CHECK((sparse || needs.whole_prompt == method.whole_prompt));  // its cells are those of the whole cache
    CHECK(needs.each_turn == method.each_turn);
    CHECK(needs.in_blocks == method.row_block);
    CHECK(needs.unseen.empty() == !sparse);
    const auto window = static_cast<std::int64_t>(std::ceil(method.window_share * 16384));
    CHECK((needs.window > trace::Recipe().window ? needs.window : 0) == window);
    ++seen;
  }
  CHECK(seen > 60);
}

TEST_CASE("a policy inside another adds its needs") {
  CHECK_FALSE(needs_of("{name: rocketkv, budget: 512}").coupled);
  CHECK(needs_of("{name: rocketkv, budget: 512, first_stage: adakv}").coupled);
  CHECK(needs_of("{name: snapkv, budget: 512, block: 128}").whole_prompt);
  CHECK_FALSE(needs_of("{name: snapkv, budget: 512}").whole_prompt);
  CHECK_FALSE(needs_of("{name: minference, then: {name: snapkv, budget: 512}}").unseen.empty());
  CHECK(needs_of("{name: kvzap}").whole_prompt);
  CHECK(needs_of("{name: blasst}").whole_prompt);
  CHECK_FALSE(needs_of("{name: blasst, scale_prefill: 0}").whole_prompt);
  CHECK_FALSE(needs_of("{name: kivi, selector: {name: quest, budget: 512}}").unseen.empty());
  // One centroid per 16 tokens of the prompt, 2048 at most.
  CHECK(needs_of("{name: ctkvr}", 16384).window == 1024);
  CHECK(needs_of("{name: ctkvr}", 131072).window == 2048);
}

}  // namespace
}  // namespace kvcast::tests
