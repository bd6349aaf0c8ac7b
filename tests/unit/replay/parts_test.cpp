// Parts of a replay: the subset of counts in each.
#include "replay/parts.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "replay/draw.hpp"
#include "unit/replay/counted_replay.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

std::set<std::int64_t> sources(const ReplayResult& part, int layer) {
  config::Model model;
  model.layers = 10, model.n_q_heads = 2, model.n_kv_heads = 2, model.head_dim = 8;
  Draw draw(part, model, 1, Stream(1));
  std::set<std::int64_t> seen;
  for (int step = 0; step < 100; ++step) seen.insert(draw.heads(layer, step)[0].attended);
  return seen;
}

TEST_CASE("a few layers give two parts each: the first and the second half of their steps") {
  const auto all = parts(replay_of({3, 7}, 6));  // two warm-up steps and four others
  REQUIRE(all.size() == 4);
  CHECK(sources(all[0], 0) == std::set<std::int64_t>{3020, 3030});
  CHECK(sources(all[1], 9) == std::set<std::int64_t>{3040, 3050});  // one layer represents all layers of the model
  CHECK(sources(all[2], 0) == std::set<std::int64_t>{7020, 7030});
  CHECK(sources(all[3], 0) == std::set<std::int64_t>{7040, 7050});
}

TEST_CASE("many layers are assigned to the parts as whole layers") {
  std::vector<int> captured;
  for (int layer = 0; layer < 10; ++layer) captured.push_back(layer);
  const auto all = parts(replay_of(captured, 4));
  REQUIRE(all.size() == 8);
  CHECK(sources(all[1], 0) == std::set<std::int64_t>{1020, 1030});
  CHECK(sources(all[1], 9) == std::set<std::int64_t>{9020, 9030});
  CHECK(sources(all[2], 9) == std::set<std::int64_t>{2020, 2030});
}

TEST_CASE("layers that the policy leaves dense are in every part and form none of their own") {
  const auto all = parts(replay_of({0, 4}, 6, 1));
  REQUIRE(all.size() == 2);
  for (const ReplayResult& part : all) {
    REQUIRE(part.layers.size() == 2);
    CHECK(part.layers[0].layer == 0);
  }
  CHECK(sources(all[0], 9) == std::set<std::int64_t>{4020, 4030});
}

TEST_CASE("counts are adjusted to the context of the step that they represent") {
  ReplayResult r = replay_of({3}, 6);
  r.growth.attended = 1;  // one more token to read at each step
  const auto all = parts(r);
  // Step 2 read 3020; at step 4 it would have read two more.
  CHECK(all[0].layers[0].at(4)[0].attended == 3022);
  CHECK(all[1].layers[0].at(2)[0].attended == 3038);  // step 4's 3040, less two steps of growth
}

TEST_CASE("equal counts, and replays with too few steps, have no parts") {
  ReplayResult equal = replay_of({3, 7}, 6);
  for (LayerCounts& layer : equal.layers) {
    for (auto& counts : layer.counts) counts = {.attended = 5};
  }
  CHECK(parts(equal).empty());
  CHECK(parts(replay_of({3}, 3)).empty());  // one step after the warm-up would be one part, the whole replay
}

}  // namespace
}  // namespace kvcast::tests
