// CTkvr and MagicPIG implemented from their definitions: double precision, full sorts, no index.
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <numbers>
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

const std::vector<TraceShape>& cpu_shapes() {
  static const std::vector<TraceShape> all = {
      {.kv_heads = 3, .group = 1, .head_dim = 8, .prompt = 80, .steps = 12, .window = 99},
      {.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 70, .steps = 9, .window = 99},
      {.kv_heads = 1, .group = 8, .head_dim = 16, .prompt = 53, .steps = 20, .window = 99}};
  return all;
}

double cosine(const Vector& a, const Vector& b) {
  const double norms = std::sqrt(naive::product(a, a) * naive::product(b, b));
  return norms > 0 ? naive::product(a, b) / norms : 0;
}

struct Ctkvr {
  std::int64_t budget = 8, centroids = 12, looked = 3, sink = 2, recent = 6;
  double factor = 2.5;
  bool rerank = true, update = true;
};

struct Centroid {
  Matrix queries;  // by member of the group
  Positions list;
};

// Largest softmax weight over the group of a list of positions, each query head's softmax over these only.
Vector largest_weight(const trace::Layer& layer, int kv_head, const Matrix& group, const Positions& list) {
  Vector out(list.size(), 0);
  for (const Vector& q : group) {
    Vector scores;
    for (const auto i : list) scores.push_back(naive::product(q, naive::key(layer, kv_head, i)));
    const Vector weights = naive::softmax_of(scores, naive::root(layer));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], weights[i]);
  }
  return out;
}

Positions picked(const Positions& list, const Vector& scores, std::int64_t k) {
  Positions out;
  for (const auto i : naive::best(scores, k)) out.push_back(list[at(i)]);
  return out;
}

// The prompt's last queries as centroids of one KV head.
std::deque<Centroid> centroids_of(const trace::Layer& layer, int kv_head, const Ctkvr& s) {
  const auto& info = layer.info();
  std::deque<Centroid> out;
  for (std::int64_t c = 0; c < s.centroids; ++c) {
    Centroid centroid;
    for (int g = 0; g < info.group(); ++g) {
      const MatrixView all = layer.queries(kv_head * info.group() + g);
      centroid.queries.push_back(naive::row(all.row(at(info.prompt_queries() - s.centroids + c)), info.head_dim));
    }
    const Vector weights = largest_weight(layer, kv_head, centroid.queries, naive::range(0, info.prompt_tokens));
    const Positions host = naive::range(s.sink, info.prompt_tokens - s.recent);
    Vector there;
    for (const auto i : host) there.push_back(weights[at(i)]);
    centroid.list = picked(host, there, static_cast<std::int64_t>(s.factor * static_cast<double>(s.budget)));
    out.push_back(std::move(centroid));
  }
  return out;
}

// The tokens that one KV head attends to at a step; advances its queue.
Positions ctkvr_step(const trace::Layer& layer, int kv_head, int t, const Ctkvr& s, std::deque<Centroid>& queue) {
  const std::int64_t tokens = layer.info().prompt_tokens + t + 1;
  const Matrix group = naive::queries(layer, kv_head, t);
  Vector likeness;
  for (const Centroid& centroid : queue) {
    double most = -2;
    for (std::size_t g = 0; g < group.size(); ++g) most = std::max(most, cosine(group[g], centroid.queries[g]));
    likeness.push_back(most);
  }
  std::set<std::int32_t> united;
  for (const auto c : naive::best(likeness, s.looked))
    united.insert(queue[at(c)].list.begin(), queue[at(c)].list.end());
  const Positions recalled(united.begin(), united.end());
  const Vector weights = largest_weight(layer, kv_head, group, recalled);
  Positions out = naive::range(0, s.sink);
  naive::add(out, s.rerank ? picked(recalled, weights, s.budget) : recalled);
  naive::add(out, naive::range(tokens - s.recent, tokens));
  if (s.update) {
    queue.pop_front();
    queue.push_back(
        {group, picked(recalled, weights, static_cast<std::int64_t>(s.factor * static_cast<double>(s.budget)))});
  }
  return out;
}

TEST_CASE("ctkvr recalls by similar queries and reranks") {
  for (const TraceShape& shape : cpu_shapes()) {
    for (const Ctkvr& s : {Ctkvr{}, Ctkvr{5, 20, 1, 0, 4, 1.5}, Ctkvr{8, 12, 3, 2, 6, 2.5, false},
                           Ctkvr{8, 12, 12, 2, 6, 2.5, true, false}, Ctkvr{3, 7, 2, 4, 9, 4, true, true}}) {
      CAPTURE(shape.prompt, s.budget, s.centroids, s.rerank, s.update);
      const MemoryTrace trace = random_trace(shape, 17);
      const auto layer = trace.load(0, 1);
      const Selected got = select(
          "ctkvr",
          fmt::format("budget: {}, centroids: {}, retrieved_centroids: {}, recall_factor: {}, sink: {}, recent: {}, "
                      "rerank: {}, update: {}",
                      s.budget, s.centroids, s.looked, s.factor, s.sink, s.recent, s.rerank, s.update),
          *layer);
      for (int h = 0; h < shape.kv_heads; ++h) {
        std::deque<Centroid> queue = centroids_of(*layer, h, s);
        for (int t = 0; t < shape.steps; ++t) {
          CAPTURE(h, t);
          CHECK(got.steps[at(t)].heads[at(h)].attended == ctkvr_step(*layer, h, t, s, queue));
        }
      }
    }
  }
}

// Numbers of the tables in which a key and a query fall into the same bucket.
int collisions(const Vector& key, const Vector& query, int bits, int tables, std::uint64_t seed) {
  const Stream planes(seed);
  const std::size_t d = key.size();
  int n = 0;
  for (int table = 0; table < tables; ++table) {
    bool same = true;
    for (int b = 0; b < bits && same; ++b) {
      double of_key = 0, of_query = 0;
      for (std::size_t j = 0; j < d; ++j) {
        const double plane = static_cast<float>(planes.normal(at(table * bits + b) * d + j));
        of_key += plane * key[j], of_query += plane * query[j];
      }
      same = (of_key > 0) == (of_query > 0);
    }
    n += same ? 1 : 0;
  }
  return n;
}

// Sampled positions of one query head and the output that the estimator gives.
std::pair<Positions, Vector> magicpig_step(const trace::Layer& layer, int q_head, int t, int bits, int tables,
                                           std::int64_t sink, std::int64_t recent) {
  const auto& info = layer.info();
  const int kv_head = q_head / info.group();
  const std::int64_t end = info.prompt_tokens - recent;
  const Vector q = naive::queries(layer, kv_head, t)[at(q_head % info.group())];
  Vector mean(at(info.head_dim), 0);
  for (std::int64_t i = sink; i < end; ++i) {
    const Vector k = naive::key(layer, kv_head, i);
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += k[j] / static_cast<double>(end - sink);
  }
  Positions attended;
  Vector logits;
  for (std::int64_t i = 0; i <= info.prompt_tokens + t; ++i) {
    Vector k = naive::key(layer, kv_head, i);
    double logit = naive::product(q, k) * naive::root(layer);
    if (i >= sink && i < end) {
      for (std::size_t j = 0; j < k.size(); ++j) k[j] -= mean[j];
      if (collisions(k, q, bits, tables, 3) < 2) continue;
      const double p = std::pow(1 - std::acos(std::clamp(cosine(q, k), -1.0, 1.0)) / std::numbers::pi, bits);
      logit -= std::log(1 - std::pow(1 - p, tables) - tables * p * std::pow(1 - p, tables - 1) + 1e-4);
    }
    attended.push_back(static_cast<std::int32_t>(i)), logits.push_back(logit);
  }
  const Vector weights = naive::softmax_of(logits, 1);
  Vector out(at(info.head_dim), 0);
  for (std::size_t i = 0; i < attended.size(); ++i) {
    const float* const value = layer.values(kv_head).row(at(attended[i]));
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += weights[i] * static_cast<double>(value[j]);
  }
  return {attended, out};
}

// body(layer, selector, t, step) after each step.
template <typename Body>
void for_steps(const TraceShape& shape, const std::string& setting, const Body& body) {
  const MemoryTrace trace = random_trace(shape, 23);
  const auto layer = trace.load(0, 1);
  const policy::LayerInput input(*layer);
  const auto policy = make("magicpig", setting, {shape.prompt, shape.steps});
  const auto selector = policy->selector(input);
  policy::LayerSelection step;
  selector->prefill(step);
  for (int t = 0; t < shape.steps; ++t) {
    selector->step(t, step);
    body(*layer, *selector, t, step);
  }
}

TEST_CASE("magicpig samples the tokens that collide twice, and corrects for the sampling") {
  for (const TraceShape& shape : cpu_shapes()) {
    for (const auto& [bits, tables] : {std::pair{3, 8}, {5, 30}, {1, 4}}) {
      CAPTURE(shape.prompt, bits, tables);
      for_steps(shape, fmt::format("hash_bits: {}, hash_tables: {}, sink: 2, recent: 5, seed: 3", bits, tables),
                [&, b = bits, l = tables](const trace::Layer& layer, const policy::Selector& selector, int t,
                                          const policy::LayerSelection& step) {
                  for (int q = 0; q < layer.info().n_q_heads; ++q) {
                    CAPTURE(t, q);
                    const auto [attended, output] = magicpig_step(layer, q, t, b, l, 2, 5);
                    CHECK(step.heads[at(q)].attended == attended);
                    const auto got = selector.output(q);
                    REQUIRE(got.size() == output.size());
                    for (std::size_t j = 0; j < output.size(); ++j) {
                      CHECK(static_cast<double>(got[j]) == Approx(output[j]).margin(1e-4));
                    }
                  }
                });
    }
  }
}

// ‖o − o_full‖ / ‖o_full‖, mean over steps and query heads.
double error_of_output(const TraceShape& shape, const std::string& setting) {
  double sum = 0;
  int n = 0;
  for_steps(shape, setting,
            [&](const trace::Layer& layer, const policy::Selector& selector, int t, const policy::LayerSelection&) {
              for (int q = 0; q < layer.info().n_q_heads; ++q) {
                const int kv_head = q / layer.info().group();
                const Vector query = naive::queries(layer, kv_head, t)[at(q % layer.info().group())];
                Vector scores;
                for (std::int64_t i = 0; i <= layer.info().prompt_tokens + t; ++i) {
                  scores.push_back(naive::product(query, naive::key(layer, kv_head, i)));
                }
                const Vector weights = naive::softmax_of(scores, naive::root(layer));
                double gap = 0, length = 0;
                for (int j = 0; j < layer.info().head_dim; ++j) {
                  double full = 0;
                  for (std::size_t i = 0; i < weights.size(); ++i) {
                    full += weights[i] * static_cast<double>(layer.values(kv_head).row(i)[j]);
                  }
                  gap += std::pow(static_cast<double>(selector.output(q)[at(j)]) - full, 2), length += full * full;
                }
                sum += std::sqrt(gap / length), ++n;
              }
            });
  return sum / n;
}

TEST_CASE("magicpig approaches full attention if all tokens are static or tables are many") {
  const TraceShape& shape = cpu_shapes()[1];
  // Nothing is left to sample.
  for_steps(shape, "sink: 20, recent: 50", [&](const trace::Layer& layer, const auto&, int t, const auto& step) {
    for (const auto& head : step.heads) {
      CHECK(head.attended == naive::range(0, layer.info().prompt_tokens + t + 1));
      CHECK(head.counts.cpu_attended == 0);
    }
  });
  CHECK(error_of_output(shape, "sink: 20, recent: 50") < 1e-5);
  // More tables find more keys similar to the query; with enough tables of short codes no key is missed, and u is 1.
  const auto error = [&](int tables) {
    return error_of_output(shape, fmt::format("hash_bits: 2, hash_tables: {}, sink: 2, recent: 5", tables));
  };
  const double few = error(4), more = error(30), all = error(1000);
  CHECK(few > more);
  CHECK(more > all);
  CHECK(all < 2e-3);
}

}  // namespace
}  // namespace kvcast::tests
