// Measured properties of heads and layers, compared with values computed by hand.
#include <catch2/catch.hpp>
#include <fstream>
#include <numeric>

#include "policies/all.hpp"
#include "policy/profile.hpp"
#include "replay/profile.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

TEST_CASE("head scores equal those worked out by hand") {
  // Keys of 0 give every visible token the same weight: 1/4 at step 0, 1/5 at step 1 (the prompt has 3 tokens).
  const MemoryTrace trace({.kv_heads = 1, .head_dim = 2, .prompt = 3, .steps = 2, .window = 1},
                          [](trace::Layer& layer) {
                            std::fill_n(layer.mutable_keys(0), 10, 0.0f);
                            std::fill_n(layer.mutable_values(0), 10, 1.0f);
                            std::fill_n(layer.mutable_queries(0), 6, 1.0f);
                          });
  const Oracle oracle(trace.load(0, 1), 1);
  // The answer's span {1, 2} gets 2/4 at step 0 and 2/5 at step 1. A step's own targets get 1/4 and 1/5, as do the
  // positions before them.
  const HeadProbe both = probe_heads(oracle, {{1}, {2}});
  CHECK(both.semantic[0] == Approx(0.9));
  CHECK(both.retrieval[0] == Approx(0.225));
  CHECK(both.echo[0] == Approx(0.225));
  CHECK(both.induction[0] == Approx(0.225));
  // Step 1 gives five tokens the same weight. Among adjacent targets, only the first follows a position that is no
  // target.
  const HeadProbe adjacent = probe_heads(oracle, {{}, {1, 2, 3}});
  CHECK(adjacent.retrieval[0] == Approx(0.6));
  CHECK(adjacent.echo[0] == Approx(0.2));
  // A target at the start has no position before it; a step without targets is not a correct answer.
  const HeadProbe start = probe_heads(oracle, {{}, {0}});
  CHECK(start.semantic[0] == Approx(0.2));
  CHECK(start.echo[0] == 0);
  CHECK_THAT(error_of([&] { probe_heads(oracle, {{}, {}}); }), Catch::Contains("targets"));
}

TEST_CASE("a layer's error equals the one worked out by hand") {
  // All weights are equal, so that the values 4 1 1 | 2 have a mean of 2. A sink of 1 and the current token give 3, an
  // error of 1/2 of the norm.
  const MemoryTrace trace({.kv_heads = 1, .head_dim = 1, .prompt = 3, .steps = 1, .window = 1},
                          [](trace::Layer& layer) {
                            const float values[] = {4, 1, 1, 2};
                            std::fill_n(layer.mutable_keys(0), 4, 0.0f);
                            std::copy_n(values, 4, layer.mutable_values(0));
                            std::fill_n(layer.mutable_queries(0), 2, 1.0f);
                          });
  const Oracle oracle(trace.load(0, 1), 1);
  const auto policy =
      policy::make_policy(policy::find_policy("streaming_llm"), config::parse_yaml("{budget: 2, sink: 1}", "test"));
  CHECK(layer_error(oracle, *policy) == Approx(0.5).epsilon(1e-5));
}

TEST_CASE("errors of several data sets equal those worked out by hand") {
  // (1 3) / 4 = (.25 .75); (2 2) / 4 = (.5 .5): mean (.375 .625), which adds up to 1 already.
  const std::vector<std::vector<double>> sets = {{1, 3}, {2, 2}};
  CHECK(average_errors(sets) == std::vector<double>{0.375, 0.625});
}

TEST_CASE("a profile is read back from its file, and a broken one is rejected") {
  policy::Profile profile;
  profile.model = "a \"model\"";
  profile.n_layers = 4, profile.n_q_heads = 2, profile.n_kv_heads = 1;
  profile.heads["semantic"] = {{0, {0.25, 1}}, {3, {1, 0}}};
  profile.layer_errors = {{1, 3}, {2, 1}};
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/profile.yaml", text = policy::write_profile(profile);
  std::ofstream(path) << text;
  const policy::Profile read = policy::read_profile(path);
  CHECK(policy::write_profile(read) == text);
  // Layer 1 is nearer to 0, layer 2 to 3. Errors of all layers: 3 3 1 1 of 8.
  CHECK(read.head_scores("semantic", 1) == std::vector<double>{0.25, 1});
  CHECK(read.head_scores("semantic", 2) == std::vector<double>{1, 0});
  CHECK(read.layer_shares() == std::vector<double>{0.375, 0.375, 0.125, 0.125});
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string broken = text;
    broken.replace(broken.find(from), from.size(), to);
    std::ofstream(path) << broken;
    return error_of([&] { policy::read_profile(path); });
  };
  CHECK_THAT(refused("[0.25, 1]", "[0.25]"), Catch::Contains("1 scores for 2 query heads"));
  CHECK_THAT(refused("layer: 3", "layer: 0"), Catch::Contains("twice"));
  CHECK_THAT(refused("layer: 3", "layer: 4"), Catch::Contains("profile.yaml:"));
  CHECK_THAT(refused("semantic", "sematic"), Catch::Contains("known"));
  CHECK_THAT(refused("kvcast-profile/1", "kvcast-profile/2"), Catch::Contains("kvcast-profile/1"));
}

}  // namespace
}  // namespace kvcast::tests
