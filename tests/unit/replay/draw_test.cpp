#include <catch2/catch.hpp>
#include <set>

#include "replay/draw.hpp"
#include "support/error_of.hpp"
#include "unit/replay/counted_replay.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

config::Model model_of(int layers) {
  config::Model model;
  model.layers = layers, model.n_q_heads = 2, model.n_kv_heads = 2, model.head_dim = 8;
  return model;
}

int layer_drawn(Draw& draw, int layer) { return static_cast<int>(draw.heads(layer, 0)[0].attended / 1000); }

TEST_CASE("a layer is represented by the nearest captured layer, the lower one of two") {
  const ReplayResult r = replay_of({0, 2, 5}, 3);
  Draw draw(r, model_of(9), 1, Stream(1));
  const int wanted[] = {0, 0, 2, 2, 5, 5, 5, 5, 5};
  for (int layer = 0; layer < 9; ++layer) {
    CAPTURE(layer);
    CHECK(layer_drawn(draw, layer) == wanted[layer]);
  }
}

TEST_CASE("a layer that the policy leaves dense does not represent a compressed one") {
  const ReplayResult r = replay_of({0, 4}, 3, 1);
  Draw draw(r, model_of(6), 1, Stream(1));
  for (int layer = 1; layer < 6; ++layer) CHECK(layer_drawn(draw, layer) == 4);
  const ReplayResult only_dense = replay_of({0}, 3, 1);
  CHECK_THAT(error_of([&] { Draw(only_dense, model_of(6), 1, Stream(1)); }), Catch::Contains("first_dense_layers (1)"));
}

TEST_CASE("whole steps are drawn, from all those after the warm-up") {
  const ReplayResult r = replay_of({0}, 6);
  Draw draw(r, model_of(1), 3, Stream(1));
  std::set<std::int64_t> seen;
  bool sequences_differ = false;
  for (int step = 0; step < 200; ++step) {
    const auto heads = draw.heads(0, step);
    REQUIRE(heads.size() == 6);  // 3 sequences × 2 heads
    for (std::size_t sequence = 0; sequence < 3; ++sequence) {
      const std::int64_t first = heads[2 * sequence].attended;
      CHECK(heads[2 * sequence + 1].attended == first + 1);  // the heads of one step stay together
      seen.insert(first / 10);
    }
    sequences_differ = sequences_differ || heads[0].attended != heads[2].attended;
  }
  CHECK(seen == std::set<std::int64_t>{2, 3, 4, 5});  // 0 and 1 are warm-up
  CHECK(sequences_differ);
}

TEST_CASE("a draw is a function of its stream, sequence, layer and step") {
  const ReplayResult r = replay_of({0, 1}, 40);
  const auto values = [&](std::uint64_t seed, int batch) {
    Draw draw(r, model_of(2), batch, Stream(seed));
    std::vector<std::int64_t> out;
    for (const int layer : {1, 0, 1}) out.push_back(draw.heads(layer, 7)[0].attended);
    return out;
  };
  CHECK(values(1, 1) == values(1, 1));
  CHECK(values(1, 1)[0] == values(1, 1)[2]);
  CHECK(values(1, 1) == values(1, 4));  // other sequences do not change the first
  CHECK(values(1, 1) != values(2, 1));
}

TEST_CASE("a replay with few steps still has one to draw from") {
  for (const int steps : {1, 2, 3}) {
    const ReplayResult r = replay_of({0}, steps);
    Draw draw(r, model_of(1), 1, Stream(1));
    for (int step = 0; step < 20; ++step) CHECK(draw.heads(0, step)[0].attended / 10 == steps - 1);
  }
}

TEST_CASE("captured steps are repeated in order by every sequence, warm-up included") {
  ReplayResult r = replay_of({0, 2}, 6);
  Draw steps = Draw::in_order(r, model_of(3), 2, 1);
  CHECK(steps.batch() == 2);
  for (const int layer : {0, 1, 2}) {
    const LayerCounts& captured = r.layers[layer == 2 ? 1 : 0];
    CHECK(steps.captured_layer(layer) == captured.layer);
    for (int step = 1; step < 6; ++step) {
      const auto heads = steps.heads(layer, step - 1);
      REQUIRE(heads.size() == 4);  // 2 sequences × 2 heads
      for (std::size_t h = 0; h < 4; ++h) CHECK(heads[h].attended == captured.at(step)[h % 2].attended);
    }
  }
  // Counts of all steps are adjusted to the last context, like those that are drawn.
  r.growth = {.attended = 1};
  const auto grown = Draw::in_order(r, model_of(3), 1, 2).heads(0, 1)[0];
  CHECK(grown.attended == r.layers[0].at(3)[0].attended + 2);
}

TEST_CASE("counts are adjusted to one context by the policy's growth") {
  ReplayResult r = replay_of({0}, 12);
  r.growth = {.attended = 1, .scored = 0.25};
  for (int step = 0; step < 12; ++step) {
    for (std::size_t head = 0; head < 2; ++head) {
      auto& c = r.layers[0].counts[static_cast<std::size_t>(step) * 2 + head];
      c.attended = 500 + step + 1;      // all tokens
      c.scored = (500 + step + 4) / 4;  // pages of 4
    }
  }
  Draw draw(r, model_of(1), 1, Stream(1));
  CHECK(draw.counted_tokens() == 512);
  for (int step = 0; step < 50; ++step) {
    CHECK(draw.heads(0, step)[1].attended == 512);
    CHECK(std::abs(draw.heads(0, step)[1].scored - 128) <= 1);
  }
}

TEST_CASE("a draw varies if its steps differ by more than growth") {
  ReplayResult r = replay_of({0}, 6);
  for (policy::HeadCounts& head : r.layers[0].counts) head = {.attended = 100};
  r.layers[0].counts[0].attended = 7;  // a warm-up step
  CHECK_FALSE(Draw(r, model_of(1), 2, Stream(1)).varies());
  r.layers[0].counts.back().attended = 101;
  CHECK(Draw(r, model_of(1), 2, Stream(1)).varies());
  // One more pair per step is growth.
  r.growth = {.attended = 1};
  for (std::size_t i = 0; i < 12; ++i) r.layers[0].counts[i].attended = 100 + static_cast<std::int64_t>(i / 2);
  CHECK_FALSE(Draw(r, model_of(1), 2, Stream(1)).varies());
}

}  // namespace
}  // namespace kvcast::tests
