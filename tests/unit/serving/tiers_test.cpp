// The link's account, and caches behind the GPU against a naive one.
#include <catch2/catch.hpp>

#include "random_load.hpp"
#include "serving/link.hpp"
#include "serving/tiers.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

constexpr Picoseconds kSecond = 1'000'000'000'000;

}  // namespace

TEST_CASE("recalls go first, then what requests wait for, then copies to the host") {
  LinkQueues link({100, 80, 150});
  const double in = link.send_in(250), out = link.send_out(100);
  // In a second, 40 recalled leave 60 of the direction, and 50 of both to the other.
  link.pass(kSecond, 40);
  CHECK(link.until_in(in) == kSecond * 19 / 10 + 1);
  CHECK_FALSE(link.is_out(out));
  CHECK(link.busy_in() == Approx(1));
  CHECK(link.busy_out() == Approx(50.0 / 80));
  link.pass(2 * kSecond, 0);
  CHECK(link.is_in(in));
  CHECK(link.is_out(out));
  CHECK(link.busy_in() == Approx((100 + 190) / 100.0));
  CHECK(link.busy_out() == Approx(100.0 / 80));
  // A pass loads 30 and recalls 20.
  CHECK(link.time_in(30, 20) == kSecond / 2);
}

TEST_CASE("both directions together never carry more than the link") {
  Draws draw(7);
  LinkQueues link({100, 80, 150});
  double seconds = 0;
  for (int i = 0; i < 5000; ++i) {
    if (draw.chance(0.5)) link.send_in(static_cast<double>(draw.between(1, 300)));
    if (draw.chance(0.5)) link.send_out(static_cast<double>(draw.between(1, 300)));
    const double step = static_cast<double>(draw.between(1, 3));
    link.pass(static_cast<Picoseconds>(step) * kSecond, static_cast<double>(draw.between(0, 400)));
    seconds += step;
    CHECK(link.busy_in() <= seconds * (1 + 1e-12));
    CHECK(link.busy_out() <= seconds * (1 + 1e-12));
    CHECK(100 * link.busy_in() + 80 * link.busy_out() <= 150 * seconds * (1 + 1e-12));
  }
  CHECK(link.busy_in() > 0.9 * seconds);  // it is short
}

TEST_CASE("a cache drops what was used longest ago, as a list of all says") {
  LinkQueues link({1, 1, 1});
  Tiers tiers({{8}}, false, link);
  std::vector<Tiers::Key> naive;  // the one used last first
  Draws draw(3);
  std::int64_t found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto key = static_cast<Tiers::Key>(draw.between(1, 20));
    const auto at = std::ranges::find(naive, key);
    if (draw.chance(0.5)) {
      tiers.touch(key);
      if (at != naive.end()) std::rotate(naive.begin(), at, at + 1);
    } else if (at == naive.end()) {
      tiers.put(key, 1, 0, 0);
      naive.insert(naive.begin(), key);
      if (naive.size() > 8) naive.pop_back();
    }
    for (Tiers::Key other = 1; other <= 20; ++other) {
      const bool there = std::ranges::find(naive, other) != naive.end();
      REQUIRE((tiers.find(other, 0) == 0) == there);
      found += there ? 1 : 0;
    }
    REQUIRE(tiers.used(0) == static_cast<double>(naive.size()));
  }
  CHECK(found > 100'000);
}

TEST_CASE("content is written through, or back") {
  LinkQueues link({100, 10, 110});
  Tiers through({{2}, {3}}, false, link), back({{2}, {3}}, true, link);
  for (const Tiers::Key key : {1, 2, 3}) through.put(key, 1, 0, 0), back.put(key, 1, 0, 0);
  for (const Tiers* tiers : {&through, &back}) {
    CHECK(tiers->find(3, 0) == 0);
    CHECK(tiers->find(2, 0) == 0);
    CHECK(tiers->find(1, 0) == 1);
  }
  CHECK(through.used(1) == 3);
  CHECK(back.used(1) == 1);
  through.limit(0);
  CHECK(through.find(3, 0) == 1);
  through.erase(3);
  CHECK(through.find(3, 0) == Tiers::kNone);
}

TEST_CASE("a copy can be read once it is written") {
  LinkQueues link({100, 10, 110});
  Tiers tiers({{100}, {100, 5, 2, 0.5}}, false, link);
  tiers.put(1, 20, 20, 0);  // 2 s over the link, 10 s to write
  CHECK(tiers.find(1, 20 * kSecond) == Tiers::kNone);
  link.pass(2 * kSecond, 0);
  CHECK(tiers.find(1, 2 * kSecond) == 0);
  tiers.limit(0);
  CHECK(tiers.find(1, 9 * kSecond) == Tiers::kNone);
  CHECK(tiers.find(1, 10 * kSecond) == 1);
  // One reads after the other, and each waits for its first bytes.
  CHECK(tiers.read(1, 20, 10 * kSecond) == 14 * kSecond + kSecond / 2);
  CHECK(tiers.read(1, 5, 10 * kSecond) == 15 * kSecond + kSecond / 2);
}

}  // namespace kvcast::tests
