#include <catch2/catch.hpp>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/parallel.hpp"

namespace kvcast::tests {

TEST_CASE("every piece of work is done once, on any number of threads", "[parallel]") {
  for (const int threads : {-1, 0, 1, 2, 3, 8, 64}) {
    for (const std::size_t n : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> done(n);
      parallel_for(n, threads, [&](std::size_t i) { ++done[i]; });
      for (const auto& d : done) REQUIRE(d == 1);
    }
  }
}

TEST_CASE("an exception reaches the caller after all threads have ended", "[parallel]") {
  for (const int threads : {1, 2, 8}) {
    std::atomic<int> inside{0};
    std::string caught;
    try {
      parallel_for(1000, threads, [&](std::size_t i) {
        ++inside;
        if (i == 13) {
          --inside;
          throw std::runtime_error("piece 13");
        }
        --inside;
      });
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    CHECK(caught == "piece 13");
    CHECK(inside == 0);  // no thread is still working
  }
}

TEST_CASE("no new work begins after a failure", "[parallel]") {
  // One thread: pieces 0 to 3 are done, 3 throws, and 4 to 999 never start.
  int done = 0;
  CHECK_THROWS_AS(parallel_for(1000, 1,
                               [&](std::size_t i) {
                                 ++done;
                                 if (i == 3) throw 1;
                               }),
                  int);
  CHECK(done == 4);
}

TEST_CASE("when all pieces fail, one failure is reported", "[parallel]") {
  CHECK_THROWS_AS(parallel_for(100, 8, [](std::size_t i) { throw i; }), std::size_t);
}

}  // namespace kvcast::tests
