// One matrix product per KV head gives the window's scores of its query heads; then softmax by row, and column sums.
#include "policy/window.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.hpp"
#include "base/floats.hpp"

namespace kvcast::policy {
namespace {

constexpr std::size_t kMostRows = 512;  // window queries: keeps their scores for a long prompt below a gigabyte

}  // namespace

WindowScores score_window(const trace::Layer& layer, int window) {
  const trace::TraceInfo& info = layer.info();
  KVCAST_CHECK(window >= 1 && window <= info.prompt_tokens);
  const auto prompt = static_cast<std::size_t>(info.prompt_tokens);
  const auto w = static_cast<std::size_t>(window);
  const std::size_t scored = prompt - w;
  const float scale = 1.0f / std::sqrt(static_cast<float>(info.head_dim));
  WindowScores out{window, {}};
  // Reading the keys dominates the cost of a product with few rows, so query heads that share keys are multiplied
  // together, unless they are many.
  const int together = w * static_cast<std::size_t>(info.group()) <= kMostRows ? info.group() : 1;
  const std::size_t d = static_cast<std::size_t>(info.head_dim), rows = w * static_cast<std::size_t>(together);
  const auto queries = std::make_unique_for_overwrite<float[]>(rows * d);
  const Floats scores = uninitialised_floats(rows * prompt);
  for (int first = 0; first < info.n_q_heads; first += together) {
    for (int g = 0; g < together; ++g) {
      std::copy_n(layer.window_queries(first + g, window).data, w * d,
                  queries.get() + static_cast<std::size_t>(g) * w * d);
    }
    MatrixView keys = layer.keys(first / info.group());
    keys.rows = prompt;
    multiply_transposed({queries.get(), rows, d, d}, keys, scores.get(), prompt, layer.cancel());
    for (std::size_t row = 0; row < rows; ++row) {
      if (row % w == 0) out.q_heads.emplace_back(scored, 0.0f);
      const std::span weights(scores.get() + row * prompt, scored + row % w + 1);
      softmax(weights, scale);
      float* const sum = out.q_heads.back().data();
      for (std::size_t i = 0; i < scored; ++i) sum[i] += weights[i];
    }
  }
  return out;
}

double WindowMoments::variance(std::size_t token, int rows) const {
  if (rows < 2) return 0;
  return std::max(0.0, (squares[token] - sum[token] * sum[token] / rows) / (rows - 1));
}

void reduce_window(const WindowScores& scores, int kv_head, int group_size, Group group, std::vector<float>& out) {
  const auto first = static_cast<std::size_t>(kv_head * group_size);
  out = scores.q_heads[first];
  for (std::size_t g = 1; g < static_cast<std::size_t>(group_size); ++g) {
    const std::vector<float>& head = scores.q_heads[first + g];
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = group == Group::kMaxWeights ? std::max(out[i], head[i]) : out[i] + head[i];
  }
  if (group == Group::kMeanWeights) {
    for (float& x : out) x /= static_cast<float>(group_size);
  }
}

namespace {

// Maximum of the `kernel` values around each: maxima over 2, 4, 8, ... neighbours, then two of these overlapping.
void pool_largest(std::size_t kernel, std::span<const float> in, std::vector<float>& out) {
  const std::size_t n = in.size();
  kernel = std::min(kernel, 2 * std::max<std::size_t>(1, n) - 1);  // a wider one gives the same result
  const std::size_t half = kernel / 2;
  std::vector<float> most(n + 2 * half, -HUGE_VALF);
  // NaN is never the maximum.
  for (std::size_t i = 0; i < n; ++i) most[half + i] = std::max(-HUGE_VALF, in[i]);
  std::size_t width = 1;  // most[i] is the maximum of `width` values from i on
  for (; 2 * width <= kernel; width *= 2) {
    for (std::size_t i = 0; i + width < most.size(); ++i) most[i] = std::max(most[i], most[i + width]);
  }
  out.resize(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = std::max(most[i], most[i + kernel - width]);
}

}  // namespace

void pool(Pooling kind, int kernel, std::span<const float> in, std::vector<float>& out) {
  KVCAST_CHECK(kernel >= 1 && kernel % 2 == 1);
  if (kind == Pooling::kMax) return pool_largest(static_cast<std::size_t>(kernel), in, out);
  const auto n = static_cast<std::ptrdiff_t>(in.size());
  const std::ptrdiff_t half = kernel / 2;
  out.assign(in.size(), 0.0f);
  // Iterates over offsets first, so that the inner loop has contiguous elements and vectorises.
  for (std::ptrdiff_t offset = -half; offset <= half; ++offset) {
    const std::ptrdiff_t begin = std::max<std::ptrdiff_t>(0, -offset), end = std::min(n, n - offset);
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      out[static_cast<std::size_t>(i)] += in[static_cast<std::size_t>(i + offset)];
    }
  }
  for (float& x : out) x /= static_cast<float>(kernel);
}

}  // namespace kvcast::policy
