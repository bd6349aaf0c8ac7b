// Many writers and killed processes: no row is lost, duplicated or half written.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <set>
#include <thread>

#include "base/random.hpp"
#include "numbered_rows.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using kvcast::store::Store;
using kvcast::store::Stored;

namespace {

// Runs `work` in a child that ends without running the parent's test framework.
template <typename Work>
pid_t spawn(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      work();
      code = 0;
    } catch (...) {
    }
    _exit(code);
  }
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("threads of one store write every row once") {
  const kvcast::TemporaryDirectory dir;
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  // Each number is stored by two of the eight threads.
  std::atomic<int> stored = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        if (put(store, 100 * (t / 2) + i)) ++stored;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(stored == 400);
  CHECK(store.keys().size() == 400);
  store.for_each(check_whole);
}

TEST_CASE("processes that start together on an empty directory write every row once") {
  const kvcast::TemporaryDirectory dir;
  constexpr int kProcesses = 6;
  constexpr int kRows = 60;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(spawn([&] {
      Store store = Store::open(dir.path() + "/new/sweep", Store::Open::kCreate);
      // Neighbours overlap by half their rows.
      for (int i = 0; i < kRows; ++i) put(store, p * kRows / 2 + i);
      store.put_replay("shared", std::string(100000, 'r'));
    }));
  }
  for (const pid_t child : children) CHECK(exit_code(child) == 0);
  const Store store = Store::open(dir.path() + "/new/sweep", Store::Open::kExisting);
  // The last process starts at 5 * 30 and writes 60 rows: 0 .. 209.
  const auto keys = store.keys();
  CHECK(keys.size() == 210);
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == 210);
  store.for_each(check_whole);
  CHECK(store.get_replay("shared") == std::string(100000, 'r'));
}

TEST_CASE("kill -9 at any moment loses no committed row and duplicates none") {
  const kvcast::TemporaryDirectory dir;
  kvcast::Stream random(20250131);
  int committed = 0;  // rows reported by a child before it died
  for (int round = 0; round < 25; ++round) {
    int report[2];
    REQUIRE(pipe(report) == 0);
    const pid_t child = spawn([&] {
      close(report[0]);
      Store store = Store::open(dir.path(), Store::Open::kCreate);
      // Resumes where the last process stopped, as a sweep does, and reports its progress after each put.
      for (int i = 0; i < 100000; ++i) {
        if (store.has(numbered(i).key)) continue;
        put(store, i);
        const int done = i + 1;
        if (write(report[1], &done, sizeof done) != sizeof done) _exit(2);
      }
    });
    close(report[1]);
    int done = 0;
    // In every other round a row is stored before the delay, however slow the machine is.
    if (round % 2 == 1) REQUIRE(read(report[0], &done, sizeof done) == sizeof done);
    committed = std::max(committed, done);
    // Delays range from before the file is open to a few hundred rows later.
    usleep(static_cast<useconds_t>(random.uniform(static_cast<std::uint64_t>(round)) * 60000));
    kill(child, SIGKILL);
    while (read(report[0], &done, sizeof done) == sizeof done) committed = std::max(committed, done);
    close(report[0]);
    CHECK(exit_code(child) == 128 + SIGKILL);

    Store store = Store::open(dir.path(), Store::Open::kCreate);
    const auto keys = store.keys();
    // Rows are written in order, so the store contains 0 .. n-1, and the one being reported at the end may be there
    // too.
    CHECK(static_cast<int>(keys.size()) >= committed);
    CHECK(static_cast<int>(keys.size()) <= committed + 1);
    CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == keys.size());
    int next = 0;
    store.for_each([&](const Stored& s) {
      CHECK(s.ordinal == next++);
      check_whole(s);
    });
    committed = static_cast<int>(keys.size());
  }
  CHECK(committed > 0);
}

}  // namespace kvcast::tests
