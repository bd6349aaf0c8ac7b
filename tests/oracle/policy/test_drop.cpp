// Compares policies that evict, position by position, with their definitions; prompts at once and in blocks.
#include <catch2/catch.hpp>

#include "compare.hpp"
#include "naive_drop.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

// Prompts longer and shorter than the budgets, block lengths that do not divide them, half-precision numbers.
const std::vector<std::pair<TraceShape, Grain>>& shapes() {
  static const std::vector<std::pair<TraceShape, Grain>> all = {
      {{.kv_heads = 3, .group = 1, .head_dim = 8, .prompt = 61, .steps = 6, .window = 99}, Grain::kSingle},
      {{.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 70, .steps = 9, .window = 99}, Grain::kHalf},
      {{.kv_heads = 1, .group = 8, .head_dim = 16, .prompt = 45, .steps = 5, .window = 99}, Grain::kSingle},
      {{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 11, .steps = 25, .window = 99}, Grain::kSingle},
  };
  return all;
}

template <typename Body>
void for_layers(const Body& body) {
  for (const auto& [shape, grain] : shapes()) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      CAPTURE(shape.prompt, shape.group, seed);
      const MemoryTrace trace = random_trace(shape, seed, grain);
      body(*trace.load(0, 1));
    }
  }
}

std::string blocks(std::int64_t block) { return block > 0 ? fmt::format(", block: {}", block) : ""; }

TEST_CASE("h2o keeps the tokens that have collected the most attention") {
  for_layers([](const trace::Layer& layer) {
    for (const std::string group : {"mean_weights", "sum_weights", "max_weights", "per_head"}) {
      for (const std::int64_t block : {0, 7}) {
        for (const bool steps : {true, false}) {
          CAPTURE(group, block, steps);
          const naive::Drop s{20, 2, 6, block, steps, group == "per_head"};
          compare(select("h2o",
                         fmt::format("budget: 20, sink: 2, recent: 6, group: {}, decode_eviction: {}{}", group, steps,
                                     blocks(block)),
                         layer),
                  naive::h2o(layer, s, group == "per_head" ? "sum" : group));
        }
      }
    }
  });
}

TEST_CASE("tova keeps the tokens that the last query attends to most") {
  for_layers([](const trace::Layer& layer) {
    for (const bool whole : {true, false}) {
      for (const std::int64_t block : {0, 7, 30}) {
        CAPTURE(whole, block);
        const naive::Drop s{20, 1, 3, block, true, false, whole};
        compare(
            select("tova",
                   fmt::format("budget: 20, sink: 1, recent: 3, scope: {}{}", whole ? "layer" : "group", blocks(block)),
                   layer),
            naive::tova(layer, s));
      }
    }
  });
}

TEST_CASE("keydiff keeps the keys that are least similar") {
  for_layers([](const trace::Layer& layer) {
    for (const std::string anchor : {"mean", "mean_raw", "median", "pairwise"}) {
      for (const std::string metric : {"cosine", "dot", "euclid"}) {
        for (const std::int64_t block : {0, 7}) {
          CAPTURE(anchor, metric, block);
          const naive::Drop s{20, 0, 4, block};
          compare(select("keydiff",
                         fmt::format("budget: 20, recent_fraction: 0.2, anchor: {}, metric: {}{}", anchor, metric,
                                     blocks(block)),
                         layer),
                  naive::keydiff(layer, s, anchor, metric));
        }
      }
    }
  });
}

TEST_CASE("keyl2norm keeps the smallest keys") {
  for_layers([](const trace::Layer& layer) {
    for (const std::int64_t block : {0, 7}) {
      CAPTURE(block);
      for (const bool steps : {false, true}) {
        compare(
            select("keyl2norm",
                   fmt::format("budget: 20, sink: 2, recent: 3, decode_eviction: {}{}", steps, blocks(block)), layer),
            naive::keyl2norm(layer, {20, 2, 3, block, steps}));
      }
    }
  });
}

TEST_CASE("snapkv and adakv in blocks, and cake's scores, follow their definitions") {
  for_layers([](const trace::Layer& layer) {
    for (const std::int64_t block : {0, 9, 30}) {
      for (const naive::Window& w : {naive::Window{4, "max", 5, "mean_weights"}, {6, "avg", 3, "max_weights"}}) {
        CAPTURE(block, w.window);
        const std::string base = fmt::format("budget: 20, window: {}, pool: {}, pool_kernel: {}, group: {}{}", w.window,
                                             w.pool, w.kernel, w.group, blocks(block));
        const naive::Drop s{20, 0, 0, block, false};
        compare(select("snapkv", base, layer), naive::adaptive(layer, s, {w}));
        compare(select("cake", base + ", layers: uniform, gamma: 5", layer), naive::adaptive(layer, s, {w, 5}));
        const std::string each = base + ", decode_eviction: true";
        const naive::Drop steps{20, 0, 0, block, true};
        compare(select("snapkv", each, layer), naive::adaptive(layer, steps, {w}));
        compare(select("cake", each + ", layers: uniform, gamma: 5", layer), naive::adaptive(layer, steps, {w, 5}));
        if (block > 0) continue;
        for (const bool normalise : {true, false}) {
          compare(select("adakv", base + fmt::format(", floor: 0.3, normalise: {}", normalise), layer),
                  naive::adaptive(layer, s, {w, -1, layer.info().prompt_tokens > 20 ? 0.3 : -1, normalise}));
        }
      }
    }
  });
}

TEST_CASE("d2o merges evicted pairs, for prompts read at once and in blocks") {
  for_layers([](const trace::Layer& layer) {
    for (const naive::D2o& s : {naive::D2o{{20, 4, 0, 0}}, naive::D2o{{21, 2, 0, 0}, 0.25, 0.3, 0.7},
                                naive::D2o{{21, 4, 0, 7}}, naive::D2o{{20, 4, 0, 0}, 0.5, 0.5, 0.5, false},
                                naive::D2o{{20, 4, 0, 7}}, naive::D2o{{20, 0, 0, 30}, 0.5, 0.7, 0.3}}) {
      CAPTURE(s.drop.budget, s.drop.block, s.alpha, s.merge);
      std::vector<naive::Matrix> outputs;
      const naive::Steps wanted = naive::d2o(layer, s, outputs);
      const std::string setting =
          fmt::format("budget: {}, sink: {}, layers: uniform, recent_share: {}, alpha: {}, beta: {}, merge: {}{}",
                      s.drop.budget, s.drop.sink, s.recent_share, s.alpha, s.beta, s.merge, blocks(s.drop.block));
      compare(select("d2o", setting, layer), wanted);
      const policy::LayerInput input(layer);
      const auto policy = make("d2o", setting, {layer.info().prompt_tokens, layer.info().decode_steps});
      const auto selector = policy->selector(input);
      policy::LayerSelection step;
      selector->prefill(step);
      for (int t = 0; t < layer.info().decode_steps; ++t) {
        selector->step(t, step);
        const naive::Matrix& heads = outputs[naive::at(t)];
        for (std::size_t q = 0; q < heads.size(); ++q) {
          const auto got = selector->output(static_cast<int>(q));
          REQUIRE(got.size() == heads[q].size());
          for (std::size_t j = 0; j < got.size(); ++j) {
            CHECK(static_cast<double>(got[j]) == Approx(heads[q][j]).margin(1e-4));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace kvcast::tests
