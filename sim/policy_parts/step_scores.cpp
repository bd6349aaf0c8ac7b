#include "policy_parts/step_scores.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "policy_parts/ranking.hpp"

namespace kvcast::policy {
namespace {

// Enough steps for an efficient matrix product that reads the keys rarely; fewer for long contexts, to limit the number
// of scores.
constexpr int kMostSteps = 16, kLeastSteps = 8;
constexpr std::size_t kScores = std::size_t{1} << 24;

// Dimensions in which any of the queries is not zero.
std::vector<std::size_t> used_dims(const std::vector<float>& queries, std::size_t d) {
  std::vector<std::size_t> used;
  for (std::size_t j = 0; j < d; ++j) {
    bool any = false;
    for (std::size_t i = j; i < queries.size() && !any; i += d) any = queries[i] != 0;
    if (any) used.push_back(j);
  }
  return used;
}

}  // namespace

StepScores::StepScores(MatrixView keys, int steps, std::size_t rows, Query query)
    : keys_(keys), steps_(steps), rows_(rows), query_(std::move(query)) {}

std::span<const float> StepScores::row(int t, std::size_t row) {
  KVCAST_CHECK(t >= 0 && t < steps_ && row < rows_);
  if (t < block_ || t >= block_ + block_steps_) make_block(t);
  const std::size_t i = (t - block_) * rows_ + row;
  return {scores_.get() + i * keys_.rows, keys_.rows};
}

void StepScores::make_block(int first) {
  block_ = first;
  const std::size_t steps_that_fit = kScores / std::max<std::size_t>(1, rows_ * keys_.rows);
  const int at_once = steps_that_fit < kMostSteps ? kLeastSteps : kMostSteps;
  block_steps_ = std::min(at_once, steps_ - first);
  const std::size_t n = block_steps_ * rows_, d = keys_.cols;
  queries_.assign(n * d, 0.0f);
  if (room_ < n * keys_.rows) {
    room_ = n * keys_.rows;
    scores_ = uninitialised_floats(room_);
  }
  for (std::size_t i = 0; i < n; ++i) {
    query_(block_ + static_cast<int>(i / rows_), i % rows_, std::span(queries_).subspan(i * d, d));
  }
  const std::vector<std::size_t> used = used_dims(queries_, d);
  if (2 * used.size() > d) {
    multiply_transposed({queries_.data(), n, d, d}, keys_, scores_.get(), keys_.rows);
    return;
  }
  // Few dimensions: computes products over these only.
  const std::size_t m = used.size();
  if (m == 0) {
    std::fill_n(scores_.get(), n * keys_.rows, 0.0f);
    return;
  }
  std::vector<float> queries(n * m);
  const Floats keys = uninitialised_floats(keys_.rows * m);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) queries[i * m + j] = queries_[i * d + used[j]];
  }
  for (std::size_t i = 0; i < keys_.rows; ++i) {
    const float* const key = keys_.row(i);
    for (std::size_t j = 0; j < m; ++j) keys[i * m + j] = key[used[j]];
  }
  multiply_transposed({queries.data(), n, m, m}, {keys.get(), keys_.rows, m, m}, scores_.get(), keys_.rows);
}

std::vector<std::int32_t> largest_dims(const trace::Layer& layer, int kv_head, int t, std::size_t n) {
  const int members = layer.info().group();
  std::vector<float> magnitude(layer.info().head_dim);
  for (int g = 0; g < members; ++g) {
    const float* const q = layer.decode_query(kv_head * members + g, t);
    for (std::size_t j = 0; j < magnitude.size(); ++j) magnitude[j] += std::abs(q[j]);
  }
  std::vector<std::int32_t> chosen;
  Ranking().select(magnitude, n, chosen);
  return chosen;
}

void attend_to(const trace::Layer& layer, int q_head, int t, std::span<const std::int32_t> tokens,
               std::span<float> out) {
  KVCAST_CHECK(!tokens.empty());
  const float* const scores = layer.decode_scores(q_head).row(t);
  std::vector<float> weights;
  weights.reserve(tokens.size());
  for (const std::int32_t i : tokens) weights.push_back(scores[i]);
  softmax(weights, 1.0f / std::sqrt(static_cast<float>(layer.info().head_dim)));
  const MatrixView values = layer.values(q_head / layer.info().group());
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const float* const value = values.row(tokens[i]);
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += weights[i] * value[j];
  }
}

}  // namespace kvcast::policy
