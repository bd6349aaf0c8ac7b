// Every file under configs/policies names a policy and valid parameters, and shadows no built-in name. The baselines of
// one paper have the same settings there and in configs/accuracy/methods.yaml.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "policies/all.hpp"
#include "policy/policy.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

TEST_CASE("the policy files are valid for their policies") {
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

// The settings in the first entry for this method and paper.
config::Node method_settings(const config::Node& methods, const std::string& method, const std::string& paper) {
  for (const config::Node& entry : methods.items()) {
    const config::Node* const papers = entry.find("papers");
    if (entry.find("methods")->items()[0].text() == method && papers && papers->items()[0].text() == paper) {
      return *entry.find("policy");
    }
  }
  throw std::runtime_error("no " + method + " of " + paper);
}

TEST_CASE("accuracy and times of FreeKV's baselines have the same settings") {
  const std::string configs = KVCAST_SOURCE_DIR "/configs/";
  const config::Node methods = config::load_yaml(configs + "accuracy/methods.yaml");
  const auto& [method, file] =
      GENERATE(std::pair("ShadowKV", "shadowkv-freekv"), std::pair("RazorAttention", "razor-attention-freekv"));
  const config::Node settings = config::load_yaml(configs + "policies/" + file + ".yaml");
  for (const auto& [key, value] : method_settings(methods, method, "FreeKV").entries()) {
    CAPTURE(file, key);
    REQUIRE(settings.find(key) != nullptr);
    CHECK(settings.find(key)->text() == value.text());
  }
}

TEST_CASE("CTkvr after MInference has the budget of its table") {
  const config::Node file = config::load_yaml(KVCAST_SOURCE_DIR "/configs/policies/minference-ctkvr.yaml");
  CHECK(file.find("then")->find("budget")->text() == "512");
}

}  // namespace
}  // namespace kvcast::tests
