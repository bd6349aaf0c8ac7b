// A file is replaced atomically, and only by a complete one.
#include "base/whole_file.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

namespace {

namespace fs = std::filesystem;
using kvcast::WholeFile;

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("a file appears when it is committed, and not before") {
  const kvcast::TemporaryDirectory dir;
  const std::string path = dir.path() + "/a.txt";
  std::ofstream(path) << "old";
  {
    WholeFile file(path);
    file.stream() << "new";
    file.stream().flush();
    CHECK(contents(path) == "old");
    file.commit();
  }
  CHECK(contents(path) == "new");
  { WholeFile(path).stream() << "lost"; }
  CHECK(contents(path) == "new");
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a target that is not a regular file is written to and not replaced") {
  const kvcast::TemporaryDirectory dir;
  const std::string link = dir.path() + "/null";
  fs::create_symlink("/dev/null", link);
  WholeFile file(link);
  file.stream() << "text";
  file.commit();
  CHECK(fs::is_symlink(link));
}

TEST_CASE("errors name the path that cannot be written") {
  const kvcast::TemporaryDirectory dir;
  CHECK_THROWS_WITH(WholeFile(dir.path() + "/none/a.txt"), Catch::Contains("none/a.txt"));
  CHECK_THROWS_AS(WholeFile(dir.path()), kvcast::UserError);
  // Nobody may create files here, and the error is not "No such file or directory".
  if (fs::is_directory("/sys/kernel"))
    CHECK_THROWS_WITH(WholeFile("/sys/kernel/a.txt"),
                      Catch::Contains("cannot be written") && !Catch::Contains("No such"));
}

}  // namespace

}  // namespace kvcast::tests
