// The request to stop, threads and memory that the system does not grant, and files that are none.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "base/cancel.hpp"
#include "base/failure.hpp"
#include "base/floats.hpp"
#include "base/parallel.hpp"
#include "base/whole_file.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

TEST_CASE("a request to stop reaches all copies, and none without a source is ever made", "[cancel]") {
  const Cancel never;
  CHECK_FALSE(never.requested());
  CHECK_NOTHROW(never.check());
  std::stop_source stop;
  const Cancel one(stop.get_token()), copy = one;
  CHECK_NOTHROW(copy.check());
  stop.request_stop();
  CHECK(copy.requested());
  CHECK_THROWS_AS(one.check(), Cancelled);
}

TEST_CASE("a request to stop ends parallel work with one exception", "[cancel]") {
  std::stop_source stop;
  std::atomic<int> begun{0};
  const auto body = [&](std::size_t i) {
    ++begun;
    if (i == 3) stop.request_stop();
    Cancel(stop.get_token()).check();
  };
  CHECK_THROWS_AS(parallel_for(1000, 4, body), Cancelled);
  CHECK(begun < 1000);
}

namespace {

// Runs the check in a process that may map only so many bytes more than now; returns its exit code.
int within(std::size_t more, int (*check)()) {
  const pid_t child = fork();
  if (child == 0) {
    std::ifstream in("/proc/self/statm");
    std::size_t pages = 0;
    in >> pages;
    const rlimit limit{pages * static_cast<std::size_t>(getpagesize()) + more, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(77);
    _exit(check());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int too_many_floats() {
  try {
    uninitialised_floats(std::size_t{1} << 30);
  } catch (const NoMemory& error) {
    return std::string(error.what()) == "too little memory: this needs 4.29 GB more, for the layers of a trace" ? 0 : 2;
  }
  return 1;
}

}  // namespace

// The address sanitizer maps terabytes.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("too little memory is an error that says for what", "[memory]") {
  CHECK(within(std::size_t{1} << 30, too_many_floats) == 0);
}
#endif

TEST_CASE("devices and pipes are no files", "[memory]") {
  const TemporaryDirectory folder;
  const std::string pipe = folder.path() + "/pipe", file = folder.path() + "/file";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  write_whole_file(file, "text");
  CHECK(is_regular(file));
  CHECK(read_whole_file(file, "the file") == "text");
  for (const std::string& other : {pipe, std::string("/dev/zero"), folder.path(), folder.path() + "/none"}) {
    INFO(other);
    CHECK_FALSE(is_regular(other));
    CHECK_THAT(error_of([&] { read_whole_file(other, "the file"); }), Catch::Contains("cannot read the file"));
  }
}

}  // namespace kvcast::tests
