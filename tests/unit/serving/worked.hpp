// Parts of the tests of worked schedules: every pass takes one unit of time, a request that arrives at t is seen by the
// pass that starts at t, and work and requests of a row are in the order of their letters.
#pragma once

#include <catch2/catch.hpp>

#include "support/serving.hpp"

namespace kvcast::tests {

using namespace serving;

inline constexpr Picoseconds kUnit = 1000;

struct Arrival {
  Picoseconds at;
  std::int64_t prompt, outputs;
};

inline std::vector<traffic::Request> requests(std::initializer_list<Arrival> list, Picoseconds earlier = 0) {
  std::vector<traffic::Request> made;
  for (const Arrival& one : list) {
    made.push_back(request(std::max<Picoseconds>(0, one.at - earlier) * kUnit, one.prompt, one.outputs));
  }
  return made;
}

// A to E of the first set, `earlier` units earlier.
inline std::vector<traffic::Request> set_1(Picoseconds earlier = 0) {
  return requests({{0, 6, 8}, {0, 10, 6}, {1, 5, 8}, {2, 9, 3}, {3, 4, 4}}, earlier);
}

// Rules of the first set: 4 sequences, 9 blocks of 4 tokens, one pass at a time.
inline Rules rules_of_set_1(Engine engine, std::int64_t budget) {
  Rules made = Rules::of(engine);
  made.max_num_seqs = 4;
  made.max_num_batched_tokens = budget;
  made.block = 4;
  made.blocks = 9;
  made.watermark = 0;
  made.in_flight = 1;
  made.skip = false;
  return made;
}

inline EventRecorder run(const Rules& with, std::vector<traffic::Request> list) {
  ListedRequests source(std::move(list));
  LinearTimes times;
  EventRecorder seen(true);
  serve(source, times, with, full_cache(with.block), seen);
  return seen;
}

inline void same_rows(const std::vector<Row>& got, const std::vector<Row>& expected) {
  CHECK(got.size() == expected.size());
  for (std::size_t t = 0; t < std::min(got.size(), expected.size()); ++t) {
    INFO("pass " << t);
    CHECK(got[t] == expected[t]);
  }
}

}  // namespace kvcast::tests
