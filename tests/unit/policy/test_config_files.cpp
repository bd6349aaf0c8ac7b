// Every file under configs/policies names a policy and valid parameters, and shadows no built-in name.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "policies/all.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {
namespace {

TEST_CASE("the policy files fit their policies") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVCAST_SOURCE_DIR "/configs/policies")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path().string());
    ++files;
    const config::Node file = config::load_yaml(entry.path().string());
    REQUIRE(file.find("name") != nullptr);
    const Descriptor& policy = find_policy(file.find("name")->text());
    CHECK_NOTHROW(ParameterValues(policy.parameters, file.without({"name", "description", "source"})));
    CHECK(file.find("description") != nullptr);
    CHECK(file.find("source") != nullptr);
    const std::string name = entry.path().stem().string();
    const auto& all = all_policies();
    CHECK(std::none_of(all.begin(), all.end(), [&](const Descriptor& d) { return d.name == name; }));
  }
  CHECK(files >= 26);
}

}  // namespace
}  // namespace kvcast::policy
