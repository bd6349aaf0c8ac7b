// A finished sweep is recognised as long as no file that its plan may follow from has changed, wherever it lies.
#include "app/planned_from.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/build.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

namespace fs = std::filesystem;

void write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

// Once the files are old enough for their states to identify their content.
std::string planned() {
  for (;;) {
    const auto hash = app::planned_from(config::parse_yaml("{policy: mine, model: tiny}", "sweep.yaml"));
    if (hash) return *hash;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

TEST_CASE("a sweep follows from the files of the data folder and from those that these name") {
  const TemporaryDirectory data, elsewhere;
  const std::string policy = elsewhere.path() + "/a policy.yaml", profile = elsewhere.path() + "/heads.yaml";
  write(data.path() + "/configs/models/tiny.yaml", "title: Tiny\nsource: https://example.org/tiny.pdf\n");
  write(data.path() + "/traces/recipes/needle.yaml", "title: needle\n");
  const DataFolder use(data.path());
  fs::current_path(elsewhere.path());  // one that has no such folders of its own
  const std::string before = planned();
  CHECK(planned() == before);
  // A file that is added to the folder names another by its path, which names a third one.
  write(data.path() + "/configs/policies/mine.yaml", "name: mine\ninner: {file: \"" + policy + "\", budget: 64}\n");
  write(policy, "name: headkv\nprofile: " + profile + "  # of this model\n");
  write(profile, "heads: [1]\n");
  const std::string added = planned();
  CHECK(added != before);
  for (const std::string& file : {policy, profile}) {
    const std::string as_it_was = planned();
    write(file, "changed: 1\nprofile: " + profile + "\n");
    CHECK(planned() != as_it_was);
  }
  write(elsewhere.path() + "/other.yaml", "nobody: names it\n");
  const std::string last = planned();
  fs::remove(elsewhere.path() + "/other.yaml");
  CHECK(planned() == last);
  fs::current_path(KVCAST_SOURCE_DIR);
}

}  // namespace kvcast::tests
