// Rows that can be checked: all values of a row follow from its number.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/hash.hpp"
#include "store/store.hpp"
#include "support/small_result.hpp"

namespace kvcast::tests {

// The text is long enough to span pages; every tenth number has a setting, and thus a column, of its own.
inline result::Result numbered(int number) {
  result::Result r = small_result();
  r.key = content_hash(std::to_string(number));
  r.subject.settings = {{"n", std::int64_t{number}}};
  if (number % 10 == 0) r.subject.settings.push_back({fmt::format("n{:05}", number % 300), std::int64_t{number}});
  r.subject.trace = std::string(static_cast<std::size_t>(100 + (number * 37) % 9000), 'a');
  r.experiment.tokens_per_s = 2 * number;
  return r;
}

inline bool put(store::Store& store, int number) { return store.put(number, numbered(number), "v"); }

inline void check_whole(const store::Stored& s) {
  const result::Result expected = numbered(static_cast<int>(s.ordinal));
  CHECK(s.result.key == expected.key);
  CHECK(s.result.subject.settings == expected.subject.settings);
  CHECK(s.result.subject.trace == expected.subject.trace);
  CHECK(s.result.experiment.tokens_per_s == expected.experiment.tokens_per_s);
}

}  // namespace kvcast::tests
