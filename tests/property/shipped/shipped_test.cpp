// Every policy by its name alone, and every file under configs/policies, runs in the quickstart's run.
#include <catch2/catch.hpp>

#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "config/find.hpp"
#include "policies/all.hpp"
#include "study/study.hpp"

namespace kvcast::tests {
namespace {

using config::Node;

// Runs it and returns the error, or an empty text. The prompt is shorter than the quickstart's to save time.
std::string stopped(const std::string& policy) {
  static const Node quickstart = config::load_yaml(*config::find_file("runs/quickstart.yaml"));
  const Node run = quickstart.with("policy", Node::scalar(policy, {}))
                       .with("workload.prompt_tokens", Node::scalar("1024", {}))
                       .with("workload.decode_tokens", Node::scalar("32", {}));
  try {
    study::Point point{run, {}, {}};
    point.ask.effects = simulate::Effects::kNone;
    return study::run_all({std::move(point)}, {}).front().error;
  } catch (const UserError& refused) {
    return refused.what();
  }
}

TEST_CASE("every policy runs by its name alone") {
  for (const policy::Descriptor& d : policy::all_policies()) {
    CAPTURE(d.name);
    CHECK(stopped(d.name) == "");
  }
}

TEST_CASE("every file of a policy runs") {
  const std::filesystem::path folder = std::filesystem::path(*config::find_file("runs/quickstart.yaml")).parent_path();
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder.parent_path() / "policies"))
    names.insert(file.path().stem().string());
  REQUIRE(names.size() > 80);
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(stopped(name) == "");
  }
}

}  // namespace
}  // namespace kvcast::tests
