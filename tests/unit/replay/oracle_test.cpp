// Full attention compared with a double-precision computation straight from its definition.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "replay/oracle.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

struct Row {
  std::vector<double> scores;  // q·k
  double log_sum = 0;
  std::vector<double> output;
};

Row by_definition(const trace::Layer& layer, int q_head, int t) {
  const auto& info = layer.info();
  const int head = q_head / info.group();
  const float* const q = layer.decode_query(q_head, t);
  Row row;
  for (std::int64_t i = 0; i <= info.prompt_tokens + t; ++i) {
    const float* const k = layer.keys(head).row(static_cast<std::size_t>(i));
    double score = 0;
    for (int j = 0; j < info.head_dim; ++j) score += static_cast<double>(q[j]) * static_cast<double>(k[j]);
    row.scores.push_back(score);
  }
  double sum = 0;
  row.output.assign(static_cast<std::size_t>(info.head_dim), 0);
  for (std::size_t i = 0; i < row.scores.size(); ++i) {
    const double weight = std::exp(row.scores[i] / std::sqrt(info.head_dim));
    sum += weight;
    for (std::size_t j = 0; j < row.output.size(); ++j) {
      row.output[j] += weight * static_cast<double>(layer.values(head).row(i)[j]);
    }
  }
  for (double& x : row.output) x /= sum;
  row.log_sum = std::log(sum);
  return row;
}

TEST_CASE("the oracle computes full attention") {
  // Cases: more steps than are weighted at once, many heads per group, and a single step.
  for (const TraceShape& shape : {TraceShape{.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 37, .steps = 21},
                                  TraceShape{.kv_heads = 3, .group = 1, .head_dim = 16, .prompt = 1, .steps = 3},
                                  TraceShape{.kv_heads = 1, .group = 8, .head_dim = 4, .prompt = 200, .steps = 1}}) {
    const MemoryTrace trace = random_trace(shape, 5);
    const Oracle oracle(trace.load(0, 1), 2);
    for (int h = 0; h < shape.kv_heads * shape.group; ++h) {
      for (int t = 0; t < shape.steps; ++t) {
        CAPTURE(shape.prompt, h, t);
        const Row row = by_definition(oracle.layer(), h, t);
        REQUIRE(oracle.visible(t) == static_cast<std::int64_t>(row.scores.size()));
        CHECK(oracle.log_sum_exp(h, t) == Approx(row.log_sum).epsilon(1e-5));
        for (std::size_t j = 0; j < row.output.size(); ++j) {
          CHECK(static_cast<double>(oracle.output(h, t)[j]) == Approx(row.output[j]).margin(1e-5));
        }
        for (std::size_t i = 0; i < row.scores.size(); ++i) {
          CHECK(static_cast<double>(oracle.scores(h, t)[i]) == Approx(row.scores[i]).margin(1e-5));
        }
      }
    }
  }
}

TEST_CASE("the exact top-k is that of a full sort, whether or not its ranks are stored") {
  // 5000 tokens are more than the stored ranks; scores in multiples of a quarter produce ties.
  const MemoryTrace trace =
      random_trace({.kv_heads = 1, .group = 1, .head_dim = 4, .prompt = 5000, .steps = 2}, 6, Grain::kQuarters);
  const Oracle oracle(trace.load(0, 1), 1);
  policy::Ranking ranking;
  for (int t = 0; t < 2; ++t) {
    const auto scores = oracle.scores(0, t);
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
    for (const std::int64_t k : {1, 2, 100, 4352, 4353, 4800, 5001}) {
      CAPTURE(t, k);
      const policy::Cut cut = oracle.top(0, t, k, ranking);
      std::vector<bool> wanted(scores.size(), false);
      for (std::int64_t i = 0; i < k; ++i) wanted[order[static_cast<std::size_t>(i)]] = true;
      bool same = true;
      for (std::size_t i = 0; i < scores.size(); ++i) {
        same = same && cut.holds(scores[i], static_cast<std::int32_t>(i)) == wanted[i];
      }
      CHECK(same);
    }
  }
}

}  // namespace
}  // namespace kvcast::tests
