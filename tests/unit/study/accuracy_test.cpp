#include "study/accuracy.hpp"

#include <catch2/catch.hpp>

namespace kvcast::tests {

using result::LayerMap;

namespace {

// Four layers: two KV heads with two query heads each; layer 3 has a list for each query head.
replay::ReplayResult replayed() {
  replay::ReplayResult r;
  r.decode_steps = 2;
  for (int layer = 0; layer < 4; ++layer) {
    replay::LayerCounts& counts = r.layers.emplace_back();
    counts.layer = 8 * layer;
    counts.heads = layer == 3 ? 4 : 2;
    for (int i = 0; i < 2 * counts.heads; ++i) {
      policy::HeadCounts& c = counts.counts.emplace_back();
      c.attended = 10 * (i + 1), c.cpu_attended = layer == 1 ? 5 : 0;
    }
    for (int h = 0; h < counts.heads; ++h) counts.resident.push_back(100 * (h + 1));
    counts.recall_mass = {0.25, 0.75, 1, 0.5};
  }
  return r;
}

}  // namespace

TEST_CASE("a map has the means of each KV head over steps and query heads") {
  const result::Accuracy accuracy = study::accuracy_of(replayed(), score::ScoreModel());
  REQUIRE(accuracy.layers.size() == 4);
  // Two heads, two steps: head 0 attends to 10 and 30, head 1 to 20 and 40.
  CHECK(accuracy.layers[0].attended == std::vector<double>{20, 30});
  CHECK(accuracy.layers[1].attended == std::vector<double>{25, 35});  // 5 more on the CPU
  CHECK(accuracy.layers[2].layer == 16);
  CHECK(accuracy.layers[0].resident == std::vector<double>{100, 200});
  CHECK(accuracy.layers[0].recall_mass == std::vector<double>{0.5, 0.75});
  // Four lists: 10 and 50, 20 and 60, 30 and 70, 40 and 80; pairs of them share a KV head.
  CHECK(accuracy.layers[3].attended == std::vector<double>{35, 55});
  CHECK(accuracy.layers[3].resident == std::vector<double>{150, 350});
  replay::ReplayResult few = replayed();
  few.layers.pop_back();
  CHECK(study::accuracy_of(few, score::ScoreModel()).layers.empty());
}

TEST_CASE("maps of the same layers are averaged, those of others are left out") {
  const std::vector<LayerMap> a = {{3, {1, 2}, {4, 4}, {0.5, 1}}}, b = {{3, {3, 6}, {8, 4}, {1, 1}}};
  const std::vector<LayerMap> other = {{4, {3, 6}, {8, 4}, {1, 1}}};
  const std::vector<study::MapShare> same = {{&a}, {&b}}, different = {{&a}, {&other}}, weighted = {{&a, 3}, {&b, 1}};
  const std::vector<LayerMap> mean = study::mean_maps(same);
  REQUIRE(mean.size() == 1);
  CHECK(mean[0].attended == std::vector<double>{2, 4});
  CHECK(mean[0].resident == std::vector<double>{6, 4});
  CHECK(mean[0].recall_mass == std::vector<double>{0.75, 1});
  CHECK(study::mean_maps(different).empty());
  // Three sequences with 1 token and one with 3: (3 · 1 + 3) / 4.
  CHECK(study::mean_maps(weighted)[0].attended == std::vector<double>{1.5, 3});
}

}  // namespace kvcast::tests
