// A value computed from files is computed again after one of them has changed, and only then.
#include "base/file_state.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.hpp"

namespace kvcast::tests {

namespace {

using kvcast::FileState;
using kvcast::MadeOfFiles;

TEST_CASE("a state identifies content that is read three seconds after it or later") {
  FileState state;
  state.changed.tv_sec = 100;
  CHECK_FALSE(state.settled(100));
  CHECK_FALSE(state.settled(102));
  CHECK(state.settled(103));
}

TEST_CASE("only regular files have a state") {
  CHECK_FALSE(kvcast::state_of("/no/such/file"));
  CHECK_FALSE(kvcast::state_of("/dev/null"));
  CHECK(kvcast::state_of("/proc/self/status"));
}

TEST_CASE("an object of old files is made once; of other files, again") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string other = std::filesystem::read_symlink("/proc/self/cwd").string() + "/no file";
  MadeOfFiles<int> numbers;
  int made = 0;
  const auto make = [&] { return ++made; };
  const auto first = numbers.of({program}, make);
  CHECK(*numbers.of({program}, make) == 1);
  CHECK(*numbers.of({program, program}, make) == 2);
  CHECK(*numbers.of({program}, make) == 3);
  CHECK(*first == 1);  // whoever holds it keeps it
  CHECK(*numbers.of({other}, make) == 4);
  CHECK(*numbers.of({other}, make) == 5);  // a file that is missing may come at any time
}

TEST_CASE("an object of a file that was just written is not kept") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/a.txt";
  MadeOfFiles<std::string> texts;
  const auto read = [&] {
    std::string text;
    std::ifstream(path) >> text;
    return text;
  };
  std::ofstream(path) << "old";
  CHECK(*texts.of({path}, read) == "old");
  std::ofstream(path) << "new";  // as long, and maybe within the resolution of the time of change
  CHECK(*texts.of({path}, read) == "new");
}

}  // namespace

}  // namespace kvcast::tests
