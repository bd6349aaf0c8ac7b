// Compares sparse prompts and randomly drawn misses with slow code that follows the definition pair by pair.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "base/random.hpp"
#include "naive_parts.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

using naive::at;
using naive::Matrix;
using naive::Positions;
using naive::Vector;

// [query][key], key ≤ query: is the pair computed?
using Pairs = std::vector<std::vector<bool>>;

Matrix prompt_weights(const trace::Layer& layer, int q_head) {
  const trace::TraceInfo& info = layer.info();
  Matrix out;
  for (std::int64_t i = 0; i < info.prompt_tokens; ++i) {
    const Vector q = naive::row(layer.queries(q_head).row(at(i)), info.head_dim);
    Vector scores;
    for (std::int64_t j = 0; j <= i; ++j) {
      scores.push_back(naive::product(q, naive::key(layer, q_head / info.group(), j)));
    }
    out.push_back(naive::softmax_of(scores, naive::root(layer)));
  }
  return out;
}

// Density and recall over the rows that the policy evaluates.
void compare(const policy::PromptAttention& got, const std::vector<Pairs>& heads, const trace::Layer& layer) {
  const std::int64_t prompt = layer.info().prompt_tokens, rows = std::min<std::int64_t>(128, prompt);
  double density = 0, recall = 0;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const Matrix weights = prompt_weights(layer, static_cast<int>(h));
    double kept = 0, all = 0;
    for (std::int64_t i = 0; i < prompt; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) kept += heads[h][at(i)][at(j)] ? 1 : 0, all += 1;
    }
    density += kept / all;
    for (std::int64_t r = 0; r < rows; ++r) {
      // One query of each part, at the golden ratio's multiple.
      const std::int64_t first = r * prompt / rows, width = (r + 1) * prompt / rows - first;
      const double turn = std::fmod(0.6180339887498949 * static_cast<double>(r + 1), 1.0);
      const std::int64_t i = first + static_cast<std::int64_t>(turn * static_cast<double>(width));
      for (std::int64_t j = 0; j <= i; ++j) recall += heads[h][at(i)][at(j)] ? weights[at(i)][at(j)] / rows : 0;
    }
  }
  CHECK(got.density == Approx(density / static_cast<double>(heads.size())));
  CHECK(got.recall_mass == Approx(recall / static_cast<double>(heads.size())).epsilon(1e-5));
}

Pairs none(std::int64_t prompt) { return Pairs(at(prompt), std::vector<bool>(at(prompt), false)); }

TEST_CASE("minference computes the columns and diagonals of its last queries") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 331, .steps = 1, .window = 331};
  const MemoryTrace trace = random_trace(shape, 5);
  const auto layer = trace.load(0, 1);
  for (const auto& [vertical, slash] : {std::pair{40, 60}, {0, 130}, {35, 250}}) {
    CAPTURE(vertical, slash);
    std::vector<Pairs> heads;
    for (int h = 0; h < 4; ++h) {
      const Matrix weights = prompt_weights(*layer, h);
      Vector columns(331), diagonals(331);
      for (std::int64_t i = 331 - 64; i < 331; ++i) {
        for (std::int64_t j = 0; j <= i; ++j) {
          columns[at(j)] += weights[at(i)][at(j)], diagonals[at(i - j)] += weights[at(i)][at(j)];
        }
      }
      for (std::size_t i = 0; i < 30; ++i) columns[i] = 1e9;
      for (std::size_t i = 0; i < 100; ++i) diagonals[i] = 1e9;
      Pairs& pairs = heads.emplace_back(none(331));
      for (const auto j : naive::best(columns, std::max(vertical, 30))) {
        for (std::int64_t i = j; i < 331; ++i) pairs[at(i)][at(j)] = true;
      }
      auto far_first = naive::best(diagonals, std::max(slash, 50));
      std::sort(far_first.begin(), far_first.end(), std::greater<>());
      for (std::int64_t block = 0; block < 331; block += 64) {
        std::int64_t first = -1, end = -1;  // of the last stretch
        for (const auto o : far_first) {
          if (o >= block + 64) continue;
          const std::int64_t reach = std::max<std::int64_t>(block + 64 - o, 64);
          if (first < 0 || reach > end + 64) {
            first = reach - 64, end = reach;
          } else if (reach > end) {
            end += 64;
          }
          for (std::int64_t i = block; i < std::min<std::int64_t>(331, block + 64); ++i) {
            for (std::int64_t j = first; j < end && j <= i; ++j) pairs[at(i)][at(j)] = true;
          }
        }
      }
    }
    const auto policy = make("minference", fmt::format("vertical: {}, slash: {}", vertical, slash), {331, 1});
    compare(policy->prompt_attention(policy::LayerInput(*layer)), heads, *layer);
  }
}

// The mass of key block `other` for block `own` of queries.
double block_mass(const trace::Layer& layer, int q_head, std::int64_t own, std::int64_t other, std::int64_t stride,
                  std::int64_t tile) {
  const trace::TraceInfo& info = layer.info();
  const std::int64_t prompt = info.prompt_tokens, pieces = (prompt + stride - 1) / stride, each = tile / stride;
  double mass = 0;
  for (std::int64_t m = own * each; m < std::min(pieces, (own + 1) * each); ++m) {
    Vector scores;
    for (std::int64_t n = 0; n <= m; ++n) {
      double score = 0;
      for (std::int64_t u = 0; u < stride; ++u) {
        const std::int64_t i = m * stride + stride - 1 - u, j = n * stride + u;
        if (i >= prompt || j >= prompt) continue;
        score += naive::product(naive::row(layer.queries(q_head).row(at(i)), info.head_dim),
                                naive::key(layer, q_head / info.group(), j));
      }
      scores.push_back(score);
    }
    const Vector weights = naive::softmax_of(scores, naive::root(layer) / static_cast<double>(stride));
    for (std::int64_t n = 0; n <= m; ++n) mass += n / each == other ? weights[at(n)] : 0;
  }
  return mass;
}

TEST_CASE("xattention computes the blocks of the largest antidiagonals") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 101, .steps = 1, .window = 101};
  const MemoryTrace trace = random_trace(shape, 6);
  const auto layer = trace.load(0, 1);
  for (const auto& [stride, tile, threshold] : {std::tuple{2, 8, 0.7}, {4, 16, 0.9}, {1, 4, 0.5}}) {
    CAPTURE(stride, tile, threshold);
    std::vector<Pairs> heads;
    for (int h = 0; h < 4; ++h) {
      Pairs& pairs = heads.emplace_back(none(101));
      for (std::int64_t own = 0; own * tile < 101; ++own) {
        Vector mass;
        double all = 0;
        for (std::int64_t b = 0; b <= own; ++b) all += mass.emplace_back(block_mass(*layer, h, own, b, stride, tile));
        std::set<std::int64_t> chosen = {0, own};
        double held = mass[0] + (own > 0 ? mass[at(own)] : 0);
        while (held < threshold * all && chosen.size() < mass.size()) {
          std::int64_t next = -1;
          for (std::int64_t b = 0; b <= own; ++b) {
            if (chosen.contains(b)) continue;
            if (next < 0 || mass[at(b)] > mass[at(next)]) next = b;
          }
          chosen.insert(next), held += mass[at(next)];
        }
        for (std::int64_t i = own * tile; i < std::min<std::int64_t>(101, (own + 1) * tile); ++i) {
          for (std::int64_t j = 0; j <= i; ++j) pairs[at(i)][at(j)] = chosen.contains(j / tile);
        }
      }
    }
    const auto policy =
        make("xattention", fmt::format("stride: {}, tile: {}, threshold: {}", stride, tile, threshold), {101, 1});
    compare(policy->prompt_attention(policy::LayerInput(*layer)), heads, *layer);
  }
}

TEST_CASE("retrieval_attention walks down the exact ranking and misses some") {
  for (const TraceShape& shape : {TraceShape{.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 200, .steps = 12},
                                  TraceShape{.kv_heads = 4, .group = 1, .head_dim = 8, .prompt = 90, .steps = 5}}) {
    const MemoryTrace trace = random_trace(shape, 7);
    const auto layer = trace.load(0, 1);
    for (const double recall : {1.0, 0.9, 0.3}) {
      for (const bool gpu : {false, true}) {
        CAPTURE(shape.group, recall, gpu);
        const Selected got = select("retrieval_attention",
                                    fmt::format("budget: 20, sink: 3, recent: 10, seed: 9, recall: {}, generated: {}",
                                                recall, gpu ? "gpu" : "index"),
                                    *layer);
        double shared = 0, found = 0;
        for (int t = 0; t < shape.steps; ++t) {
          const std::int64_t tokens = shape.prompt + t + 1, end = (gpu ? shape.prompt : tokens) - 10;
          for (int h = 0; h < shape.kv_heads * shape.group; ++h) {
            const Vector q = naive::queries(*layer, h / shape.group, t)[at(h % shape.group)];
            Vector scores;
            for (std::int64_t i = 3; i < end; ++i)
              scores.push_back(naive::product(q, naive::key(*layer, h / shape.group, i)));
            std::vector<std::int64_t> order;
            for (std::int64_t i = 3; i < end; ++i) order.push_back(i);
            std::stable_sort(order.begin(), order.end(),
                             [&](std::int64_t a, std::int64_t b) { return scores[at(a - 3)] > scores[at(b - 3)]; });
            const auto name = [](int n) { return static_cast<std::uint64_t>(n); };
            const Stream draws = Stream(9).child({name(layer->id()), name(h), name(t)});
            std::set<std::int32_t> wanted = {0, 1, 2};
            int walked = 0, missing = 20;
            for (const std::int64_t i : order) {
              if (missing == 0) break;
              ++walked;
              if (draws.uniform(static_cast<std::uint64_t>(i)) >= recall) continue;
              wanted.insert(static_cast<std::int32_t>(i)), --missing;
              if (walked <= 20) shared += 1;
            }
            found += 20;
            for (std::int64_t i = end; i < tokens; ++i) wanted.insert(static_cast<std::int32_t>(i));
            CHECK(got.steps[at(t)].heads[at(h)].attended == Positions(wanted.begin(), wanted.end()));
          }
        }
        // The share `recall` of the exact best 20 is found.
        CHECK(shared / found == Approx(recall).margin(0.05));
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::tests
