#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "config/yaml.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

NamedFiles files_of(const std::string& policy, const std::string& parameters) {
  return named_files(find_policy(policy), config::parse_yaml("{" + parameters + "}", "p.yaml"));
}

using Paths = std::vector<std::string>;

TEST_CASE("files named by a policy are found in its parameters, whatever their keys") {
  CHECK(files_of("loki", "basis: /x/bases.safetensors").paths == Paths{"/x/bases.safetensors"});
  CHECK(files_of("loki", "basis: prompt").paths.empty());
  CHECK(files_of("replayed", "selections: /x/s.jsonl").paths == Paths{"/x/s.jsonl"});
  CHECK(files_of("replayed", "selections: none").paths.empty());
  CHECK(files_of("quest", "budget: 64").paths.empty());
}

TEST_CASE("head profiles are also found in a nested policy and in its file") {
  const TemporaryDirectory scratch;
  const NamedFiles own = files_of("headkv", "profile: llama-3.1-8b");
  REQUIRE(own.paths.size() == 1);
  CHECK(own.paths[0].ends_with("profiles/llama-3.1-8b.yaml"));
  CHECK(own.profile);
  CHECK_FALSE(files_of("headkv", "profile: none").profile);

  CHECK(files_of("minference", "then: {name: headkv, profile: llama-3.1-8b}").profile);
  const std::string inner = scratch.path() + "/inner.yaml";
  std::ofstream(inner) << "name: headkv\nbudget: 64\nprofile: llama-3.1-8b\n";
  const NamedFiles nested = files_of("minference", "then: " + inner);
  REQUIRE(nested.paths.size() == 2);
  CHECK(nested.paths[0] == inner);
  CHECK(nested.profile);
  CHECK_FALSE(files_of("minference", "then: {name: quest, budget: 64}").profile);
}

TEST_CASE("a list of profiles in one policy is refused as such") {
  CHECK_THROWS_WITH(files_of("headkv", "profile: [a.yaml, b.yaml]"),
                    Catch::Contains("p.yaml:1:11: profile: expected a name or a path, found a list"));
}

}  // namespace
}  // namespace kvcast::tests
