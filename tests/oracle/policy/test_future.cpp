// Expected Attention, KVzip and R-KV by their definitions: double precision, whole matrices, no shared state.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "compare.hpp"
#include "naive_drop.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {
namespace {

using naive::at;
using naive::Heads;
using naive::Matrix;
using naive::Positions;
using naive::Steps;
using naive::Vector;

// The query of a prompt position or a later one; the traces contain all of them.
Vector query_at(const trace::Layer& layer, int q_head, std::int64_t position) {
  return naive::row(layer.queries(q_head).row(at(position)), layer.info().head_dim);
}

// Turned by `tokens` positions, in the half-split form.
Vector turned(const Vector& x, double tokens) {
  const std::size_t half = x.size() / 2;
  Vector out(x.size());
  for (std::size_t p = 0; p < half; ++p) {
    const double angle = tokens * std::pow(10000.0, -static_cast<double>(p) / static_cast<double>(half));
    out[p] = std::cos(angle) * x[p] - std::sin(angle) * x[half + p];
    out[half + p] = std::sin(angle) * x[p] + std::cos(angle) * x[half + p];
  }
  return out;
}

Steps keep_prompt(const trace::Layer& layer, const Heads& kept) {
  const std::int64_t prompt = layer.info().prompt_tokens;
  return naive::by_step(layer, kept, [&](int t) {
    Heads out = kept;
    for (Positions& head : out) naive::add(head, naive::range(prompt, prompt + t + 1));
    return out;
  });
}

Positions everything(const trace::Layer& layer) { return naive::range(0, layer.info().prompt_tokens); }

// Returns the weights that a query head is expected to give to the tokens after the sink, by moments of queries from
// `first` on.
Vector expected_weights(const trace::Layer& layer, int q_head, std::int64_t sink, std::int64_t first, int future,
                        bool covariance) {
  const auto& info = layer.info();
  const std::size_t d = at(info.head_dim);
  Matrix queries;
  for (std::int64_t i = first; i < info.prompt_tokens; ++i) {
    queries.push_back(turned(query_at(layer, q_head, i), -static_cast<double>(i)));
  }
  // Rows of the mean rotation: the image of each unit vector.
  Matrix rotation(d, Vector(d));
  for (std::size_t j = 0; j < d; ++j) {
    Vector unit(d);
    unit[j] = 1;
    for (int f = 0; f < future; ++f) {
      const Vector image = turned(unit, static_cast<double>(info.prompt_tokens + f));
      for (std::size_t i = 0; i < d; ++i) rotation[i][j] += image[i] / future;
    }
  }
  for (Vector& q : queries) {
    Vector image;
    for (const Vector& row : rotation) image.push_back(naive::product(row, q));
    q = image;
  }
  Vector scores;
  for (std::int64_t i = sink; i < info.prompt_tokens; ++i) {
    const Vector key = naive::key(layer, q_head / info.group(), i);
    // The score is linear in the query: its mean and variance over queries are those of the products.
    double mean = 0, variance = 0;
    for (const Vector& q : queries) mean += naive::product(q, key) / static_cast<double>(queries.size());
    for (const Vector& q : queries) {
      variance += std::pow(naive::product(q, key) - mean, 2) / static_cast<double>(queries.size());
    }
    const double dim = static_cast<double>(d);
    scores.push_back(mean / std::sqrt(dim) + (covariance ? variance / dim / 2 : 0));
  }
  return naive::softmax_of(scores, 1);
}

Steps expected_attention(const trace::Layer& layer, std::int64_t sink, std::int64_t queries, bool covariance,
                         bool norm) {
  const auto& info = layer.info();
  if (info.prompt_tokens <= 20) return keep_prompt(layer, Heads(at(info.n_kv_heads), everything(layer)));
  const std::int64_t first = queries > 0 ? std::max(sink, info.prompt_tokens - queries) : sink;
  Heads kept;
  for (int h = 0; h < info.n_kv_heads; ++h) {
    Vector scores(at(info.prompt_tokens), 1e30);
    for (std::int64_t i = sink; i < info.prompt_tokens; ++i) scores[at(i)] = norm ? 0.01 : 0;
    for (int g = 0; g < info.group(); ++g) {
      const Vector weights = expected_weights(layer, h * info.group() + g, sink, first, 30, covariance);
      for (std::size_t i = 0; i < weights.size(); ++i) scores[at(sink) + i] += weights[i] / info.group();
    }
    for (std::int64_t i = sink; norm && i < info.prompt_tokens; ++i) {
      const Vector value = naive::row(layer.values(h).row(at(i)), info.head_dim);
      scores[at(i)] *= std::sqrt(naive::product(value, value));
    }
    kept.push_back(naive::best(scores, 20));
  }
  return keep_prompt(layer, kept);
}

TEST_CASE("expected attention keeps the tokens that later queries are expected to attend to") {
  for_random_layers(99, 41, [](const trace::Layer& layer) {
    for (const std::int64_t sink : {0, 3}) {
      for (const std::int64_t queries : {0, 12}) {
        for (const auto& [covariance, norm] : {std::pair(true, true), {true, false}, {false, true}}) {
          CAPTURE(sink, queries, covariance, norm);
          const std::string setting =
              fmt::format("budget: 20, future: 30, sink: {}, queries: {}, covariance: {}, value_norm: {}, epsilon: {}",
                          sink, queries > 0 ? std::to_string(queries) : "prompt", covariance, norm, norm ? 0.01 : 0);
          compare(select("expected_attention", setting, layer),
                  expected_attention(layer, sink, queries, covariance, norm));
        }
      }
    }
  });
}

// Scores of a KV head's prompt tokens while the prompt is repeated in pieces.
Vector repeated(const trace::Layer& layer, int head, std::int64_t sink, std::int64_t chunk) {
  const auto& info = layer.info();
  Vector out(at(info.prompt_tokens));
  for (int g = 0; g < info.group(); ++g) {
    for (std::int64_t i = 0; i < info.prompt_tokens; ++i) {
      const std::int64_t start = i / chunk * chunk, end = std::min(start + chunk, info.prompt_tokens);
      const double shift = static_cast<double>(info.prompt_tokens - start);
      const Vector query = turned(query_at(layer, head * info.group() + g, i), shift);
      Vector logits;
      for (std::int64_t j = 0; j < std::min(sink, start); ++j)
        logits.push_back(naive::product(query, naive::key(layer, head, j)));
      const std::size_t before = logits.size();
      for (std::int64_t j = start; j < end; ++j) logits.push_back(naive::product(query, naive::key(layer, head, j)));
      for (std::int64_t j = start; j <= i; ++j) {
        logits.push_back(naive::product(query, turned(naive::key(layer, head, j), shift)));
      }
      const Vector weights = naive::softmax_of(logits, naive::root(layer));
      for (std::int64_t j = start; j < end; ++j) {
        out[at(j)] = std::max(out[at(j)], weights[before + at(j - start)]);
      }
    }
  }
  for (std::int64_t i = 0; i < sink; ++i) out[at(i)] = 2;
  return out;
}

TEST_CASE("kvzip keeps the tokens that the repeated prompt attends to most") {
  for_random_layers(99, 41, [](const trace::Layer& layer) {
    const auto& info = layer.info();
    for (const auto& [sink, chunk] : {std::pair<std::int64_t, std::int64_t>{0, 100}, {2, 16}, {4, 7}}) {
      for (const bool by_head : {false, true}) {
        CAPTURE(sink, chunk, by_head);
        Heads kept;
        Vector all;
        for (int h = 0; h < info.n_kv_heads; ++h) {
          const Vector scores = repeated(layer, h, sink, chunk);
          kept.push_back(naive::best(scores, 20));
          all.insert(all.end(), scores.begin(), scores.end());
        }
        if (!by_head) {
          kept.assign(kept.size(), {});
          for (const auto i : naive::best(all, 20 * info.n_kv_heads)) {
            kept[at(i / info.prompt_tokens)].push_back(static_cast<std::int32_t>(i % info.prompt_tokens));
          }
        }
        compare(
            select("kvzip",
                   fmt::format("budget: 20, sink: {}, chunk: {}, scope: {}", sink, chunk, by_head ? "head" : "layer"),
                   layer),
            keep_prompt(layer, kept));
      }
    }
  });
}

struct Rkv {
  std::int64_t buffer = 8, window = 4, block = 0;
  int kernel = 5;
  double lambda = 0.3, similarity = 0.5;
};

// Scores of the tokens before the window, `end` tokens having been read.
Vector rkv_scores(const trace::Layer& layer, int head, std::int64_t end, const Positions& list, const Rkv& s) {
  const auto& info = layer.info();
  const std::size_t n = list.size(), before = n - at(s.window);
  Matrix keys;
  for (const auto i : list) keys.push_back(naive::key(layer, head, i));
  Vector importance(before), redundancy(n);
  for (std::int64_t r = end - s.window; r < end; ++r) {
    Vector row(before, -std::numeric_limits<double>::infinity());
    for (int g = 0; g < info.group(); ++g) {
      const Vector query = query_at(layer, head * info.group() + g, r);
      for (std::size_t i = 0; i < before; ++i) row[i] = std::max(row[i], naive::product(query, keys[i]));
    }
    row = naive::softmax_of(row, naive::root(layer));
    for (std::size_t i = 0; i < before; ++i) importance[i] += row[i] / static_cast<double>(s.window);
  }
  for (std::size_t i = 0; i < n; ++i) {
    Vector cosines(n);
    std::size_t last = 0;
    for (std::size_t j = 0; j < n; ++j) {
      if (j == i) continue;
      cosines[j] = naive::product(keys[i], keys[j]) /
                   std::sqrt(naive::product(keys[i], keys[i]) * naive::product(keys[j], keys[j]));
      if (cosines[j] > s.similarity) last = j;
    }
    cosines[last] = 0;
    for (std::size_t j = 0; j < n; ++j) redundancy[j] += cosines[j] / static_cast<double>(n);
  }
  redundancy = naive::softmax_of(redundancy, 1);
  Vector out;
  for (std::size_t i = 0; i < before; ++i) {
    double best = 0;
    const std::size_t reach = at(s.kernel / 2);
    for (std::size_t j = i > reach ? i - reach : 0; j <= std::min(before - 1, i + reach); ++j)
      best = std::max(best, importance[j]);
    out.push_back(s.lambda * best - (1 - s.lambda) * redundancy[i]);
  }
  return out;
}

Steps rkv(const trace::Layer& layer, const Rkv& s) {
  const auto& info = layer.info();
  const std::int64_t budget = 20;
  Heads held(at(info.n_kv_heads));
  const auto compress = [&](std::int64_t end) {
    for (std::size_t h = 0; h < held.size(); ++h) {
      if (static_cast<std::int64_t>(held[h].size()) < budget + s.buffer) continue;
      const Vector scores = rkv_scores(layer, static_cast<int>(h), end, held[h], s);
      Positions stay;
      for (const auto i : naive::best(scores, budget - s.window)) stay.push_back(held[h][at(i)]);
      stay.insert(stay.end(), held[h].end() - s.window, held[h].end());
      held[h] = stay;
    }
  };
  const std::int64_t block = s.block > 0 ? s.block : info.prompt_tokens;
  for (std::int64_t first = 0; first < info.prompt_tokens; first += block) {
    const std::int64_t end = std::min(first + block, info.prompt_tokens);
    for (Positions& head : held) naive::add(head, naive::range(first, end));
    compress(end);
  }
  return naive::by_step(layer, held, [&](int t) {
    for (Positions& head : held) head.push_back(static_cast<std::int32_t>(info.prompt_tokens + t));
    const Heads attended = held;
    compress(info.prompt_tokens + t + 1);
    return attended;
  });
}

TEST_CASE("rkv keeps the tokens that are attended to and not redundant") {
  for_random_layers(99, 41, [](const trace::Layer& layer) {
    for (const Rkv& s : {Rkv{}, Rkv{.buffer = 3, .window = 2, .lambda = 0.07}, Rkv{.similarity = 0.2},
                         Rkv{.buffer = 5, .block = 9, .kernel = 1, .lambda = 1}, Rkv{.block = 30, .lambda = 0}}) {
      CAPTURE(s.buffer, s.block, s.lambda);
      const std::string block = s.block > 0 ? fmt::format(", block: {}", s.block) : "";
      compare(select("rkv",
                     fmt::format("budget: 20, buffer: {}, window: {}, pool_kernel: {}, lambda: {}, similarity: {}{}",
                                 s.buffer, s.window, s.kernel, s.lambda, s.similarity, block),
                     layer),
              rkv(layer, s));
    }
  });
}

}  // namespace
}  // namespace kvcast::tests
