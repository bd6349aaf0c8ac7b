// SparQ, ShadowKV, InfiniGen and KIVI implemented a second time, from their definitions: double precision, full sorts,
// no shared state.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "naive_parts.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

using naive::at;
using naive::best;
using naive::Positions;
using naive::Vector;

double product(const float* a, const float* b, std::int64_t d) {
  double sum = 0;
  for (std::int64_t j = 0; j < d; ++j) sum += static_cast<double>(a[j]) * static_cast<double>(b[j]);
  return sum;
}

Vector softmax_of(Vector x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (double& v : x) v /= sum;
  return x;
}

const std::vector<TraceShape>& estimate_shapes() {
  static const std::vector<TraceShape> all = {
      {.kv_heads = 4, .group = 1, .head_dim = 8, .prompt = 61, .steps = 6, .window = 8},
      {.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 70, .steps = 11, .window = 8},
      {.kv_heads = 1, .group = 8, .head_dim = 16, .prompt = 53, .steps = 5, .window = 8},
      {.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 9, .steps = 40, .window = 8},
      {.kv_heads = 1, .group = 2, .head_dim = 8, .prompt = 1, .steps = 30, .window = 1}};
  return all;
}

// Calls body(layer, the policy's selector after prefill, t, step) for every step of every shape and seed.
template <typename Body>
void for_steps(const std::string& name, const std::string& setting, const Body& body) {
  for (const TraceShape& shape : estimate_shapes()) {
    for (std::uint64_t seed = 31; seed < 34; ++seed) {
      CAPTURE(name, setting, shape.prompt, seed);
      const MemoryTrace trace = random_trace(shape, seed);
      const auto layer = trace.load(0, 1);
      const policy::LayerInput input(*layer);
      const auto policy = make(name, setting, {shape.prompt, shape.steps});
      const auto selector = policy->selector(input);
      policy::LayerSelection step;
      selector->prefill(step);
      for (int t = 0; t < shape.steps; ++t) {
        CAPTURE(t);
        selector->step(t, step);
        body(*layer, *selector, t, step);
      }
    }
  }
}

void check_output(std::span<const float> got, const Vector& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    CHECK(static_cast<double>(got[j]) == Approx(wanted[j]).margin(2e-5).epsilon(2e-4));
  }
}

// Logits of one query head over positions 0 … n − 1 from the r dimensions that its group chose.
Vector sparq_logits(const trace::Layer& layer, int q_head, int t, std::int64_t n, const Positions& dims) {
  const auto d = layer.info().head_dim;
  const float* const q = layer.decode_query(q_head, t);
  double all = 0, chosen = 0;
  for (int j = 0; j < d; ++j) all += std::abs(static_cast<double>(q[j]));
  for (const auto j : dims) chosen += std::abs(static_cast<double>(q[j]));
  Vector out;
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (const auto j : dims) {
      sum += static_cast<double>(q[j]) * static_cast<double>(layer.keys(q_head / layer.info().group()).row(at(i))[j]);
    }
    out.push_back(sum / std::sqrt(d * chosen / all));
  }
  return out;
}

TEST_CASE("sparq's selection and output follow their definition") {
  for (const std::int64_t recent : {0, 3}) {
    for_steps("sparq", fmt::format("budget: 12, dims: 3, recent: {}", recent),
              [&](const trace::Layer& layer, const policy::Selector& selector, int t, const auto& step) {
                const auto& info = layer.info();
                const std::int64_t n = info.prompt_tokens + t + 1, d = info.head_dim;
                for (int h = 0; h < info.n_kv_heads; ++h) {
                  Vector magnitude(at(d));
                  for (int g = 0; g < info.group(); ++g) {
                    for (std::int64_t j = 0; j < d; ++j) {
                      magnitude[at(j)] += std::abs(static_cast<double>(layer.decode_query(h * info.group() + g, t)[j]));
                    }
                  }
                  const Positions dims = best(magnitude, 3);
                  Vector sum(at(n));
                  for (int g = 0; g < info.group(); ++g) {
                    const Vector logits = sparq_logits(layer, h * info.group() + g, t, n, dims);
                    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += logits[i];
                  }
                  for (std::int64_t i = std::max<std::int64_t>(0, n - recent); i < n; ++i) sum[at(i)] = 1e30;
                  const Positions wanted = best(sum, 13);
                  CHECK(step.heads[at(h)].attended == wanted);
                  for (int g = 0; g < info.group() && n > 13; ++g) {
                    const int q_head = h * info.group() + g;
                    const Vector guess = softmax_of(sparq_logits(layer, q_head, t, n, dims));
                    Vector scores, out(at(d));
                    double alpha = 0;
                    for (const auto i : wanted) {
                      alpha += guess[at(i)];
                      scores.push_back(product(layer.decode_query(q_head, t), layer.keys(h).row(at(i)), d) /
                                       std::sqrt(static_cast<double>(d)));
                    }
                    const Vector weights = softmax_of(scores);
                    for (std::int64_t j = 0; j < d; ++j) {
                      double mean = 0;
                      for (std::int64_t i = 0; i < n; ++i) {
                        mean += static_cast<double>(layer.values(h).row(at(i))[j]) / static_cast<double>(n);
                      }
                      for (std::size_t i = 0; i < wanted.size(); ++i) {
                        out[at(j)] += alpha * weights[i] * static_cast<double>(layer.values(h).row(at(wanted[i]))[j]);
                      }
                      out[at(j)] += (1 - alpha) * mean;
                    }
                    check_output(selector.output(q_head), out);
                  }
                }
              });
  }
}

TEST_CASE("loki with all dimensions is exact top-k") {
  for_steps(
      "loki", "budget: 12, dims: 16", [](const trace::Layer& layer, const policy::Selector&, int t, const auto& step) {
        const auto& info = layer.info();
        for (int h = 0; h < info.n_kv_heads; ++h) {
          Vector sum;
          for (std::int64_t i = 0; i <= info.prompt_tokens + t; ++i) {
            double score = 0;
            for (int g = 0; g < info.group(); ++g) {
              score += product(layer.decode_query(h * info.group() + g, t), layer.keys(h).row(at(i)), info.head_dim);
            }
            sum.push_back(score);
          }
          CHECK(step.heads[at(h)].attended == best(sum, 12));
        }
      });
}

TEST_CASE("infinigen follows its definition") {
  for_steps("infinigen", "skew: false, partial_ratio: 0.5, max_share: 0.4, alpha: 1",
            [](const trace::Layer& layer, const policy::Selector&, int t, const auto& step) {
              const auto& info = layer.info();
              const std::int64_t pool = info.prompt_tokens + t, d = info.head_dim;
              std::vector<Vector> scores;
              double above = 0;
              for (int h = 0; h < info.n_kv_heads; ++h) {
                Vector magnitude(at(d)), mean(at(pool));
                for (int g = 0; g < info.group(); ++g) {
                  for (std::int64_t i = 0; i < info.prompt_queries() * d; ++i) {
                    magnitude[at(i % d)] += std::abs(static_cast<double>(layer.queries(h * info.group() + g).data[i]));
                  }
                }
                const Positions columns = best(magnitude, d / 2);
                for (std::int64_t i = 0; i < pool; ++i) {
                  for (int g = 0; g < info.group(); ++g) {
                    for (const auto j : columns) {
                      mean[at(i)] += static_cast<double>(layer.decode_query(h * info.group() + g, t)[j]) *
                                     static_cast<double>(layer.keys(h).row(at(i))[j]) / info.group() /
                                     std::sqrt(static_cast<double>(d));
                    }
                  }
                }
                const double bar = *std::max_element(mean.begin(), mean.end()) - 1;
                above +=
                    static_cast<double>(std::count_if(mean.begin(), mean.end(), [&](double x) { return x > bar; }));
                scores.push_back(mean);
              }
              const double n = std::max(
                  1.0, std::min(std::floor(above / info.n_kv_heads), std::floor(0.4 * static_cast<double>(pool))));
              for (int h = 0; h < info.n_kv_heads; ++h) {
                CHECK(step.heads[at(h)].fetched == best(scores[at(h)], static_cast<std::int64_t>(n)));
              }
            });
}

// A number after quantisation with all others of its group.
double requantised(const Vector& group, double x, int bits) {
  const double low = *std::min_element(group.begin(), group.end());
  const double scale = (*std::max_element(group.begin(), group.end()) - low) / ((1 << bits) - 1);
  return scale == 0 ? x : std::nearbyint((x - low) / scale) * scale + low;
}

TEST_CASE("kivi's output follows its definition") {
  constexpr std::int64_t kResidual = 8, kGroup = 4;
  for_steps("kivi", "key_bits: 2, value_bits: 3, quant_group: 4, residual: 8",
            [](const trace::Layer& layer, const policy::Selector& selector, int t, const auto&) {
              const auto& info = layer.info();
              const std::int64_t n = info.prompt_tokens + t + 1, d = info.head_dim;
              const std::int64_t keys = (n - 1) / kResidual * kResidual, values = std::max<std::int64_t>(0, n - 9);
              for (int q = 0; q < info.n_q_heads; ++q) {
                const MatrixView k = layer.keys(q / info.group()), v = layer.values(q / info.group());
                Vector scores, out(at(d));
                for (std::int64_t i = 0; i < n; ++i) {
                  double sum = 0;
                  for (std::int64_t j = 0; j < d; ++j) {
                    Vector group;
                    for (std::int64_t m = i / kGroup * kGroup; m < i / kGroup * kGroup + kGroup && i < keys; ++m) {
                      group.push_back(static_cast<double>(k.row(at(m))[j]));
                    }
                    const auto x = static_cast<double>(k.row(at(i))[j]);
                    sum += static_cast<double>(layer.decode_query(q, t)[j]) * (i < keys ? requantised(group, x, 2) : x);
                  }
                  scores.push_back(sum / std::sqrt(static_cast<double>(d)));
                }
                const Vector weights = softmax_of(scores);
                for (std::int64_t i = 0; i < n; ++i) {
                  for (std::int64_t j = 0; j < d; ++j) {
                    const float* const first = v.row(at(i)) + j / kGroup * kGroup;
                    const auto x = static_cast<double>(v.row(at(i))[j]);
                    out[at(j)] += weights[at(i)] * (i < values ? requantised(Vector(first, first + kGroup), x, 3) : x);
                  }
                }
                if (keys == 0 && values == 0) {
                  CHECK(selector.output(q).empty());
                } else {
                  check_output(selector.output(q), out);
                }
              }
            });
}

}  // namespace
}  // namespace kvcast::tests
