// Scores come from one matrix product per KV head; softmax row by row; outputs from one more product per query head.
#include "replay/oracle.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "replay/rounded_cache.hpp"

namespace kvcast::replay {
namespace {

// Budgets are rarely larger; costs 8 bytes each per row.
constexpr std::int64_t kRanked = 4352;
constexpr int kStepsAtOnce = 16;  // of weights held in addition to the scores

}  // namespace

Oracle::Oracle(std::unique_ptr<trace::Layer> layer, int threads, config::CacheFormat cache)
    : layer_(std::move(layer)),
      rounded_(cache == config::Precision::kBf16 ? nullptr : with_rounded_cache(*layer_, cache, threads)),
      input_(rounded_ ? *rounded_ : *layer_, threads) {
  KVCAST_CHECK(info().decode_steps >= 1);
  layer_->compute_scores(threads);
  const std::size_t rows = at(info().n_q_heads, 0);
  ranked_ = std::min(kRanked, visible(0));
  ranks_.resize(rows * ranked_);
  log_sums_.resize(rows);
  outputs_.resize(rows * info().head_dim);
  layer_->visit_values(threads, [&](int q_head, MatrixView values) {
    attend(q_head, values);
    rank(q_head);
  });
  trace::Targets targets = trace::read_targets(info());
  const bool any = std::ranges::any_of(targets, [](const auto& step) { return !step.empty(); });
  if (any) targets_ = std::make_unique<FullMass>(*layer_, std::move(targets), threads, log_sums_);
}

std::span<const float> Oracle::scores(int q_head, int t) const {
  return {layer_->decode_scores(q_head).row(static_cast<std::size_t>(t)), static_cast<std::size_t>(visible(t))};
}

std::span<const float> Oracle::output(int q_head, int t) const {
  const auto d = static_cast<std::size_t>(info().head_dim);
  return std::span(outputs_).subspan(at(q_head, t) * d, d);
}

void Oracle::attend(int q_head, MatrixView values) {
  const auto d = static_cast<std::size_t>(info().head_dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(info().head_dim));
  const std::size_t positions = values.rows;
  std::vector<float> weights;
  for (int first = 0; first < info().decode_steps; first += kStepsAtOnce) {
    const int steps = std::min(kStepsAtOnce, info().decode_steps - first);
    weights.assign(static_cast<std::size_t>(steps) * positions, 0.0f);  // zero after each step's own position
    for (int i = 0; i < steps; ++i) {
      const std::span<const float> row = scores(q_head, first + i);
      float* const out = weights.data() + static_cast<std::size_t>(i) * positions;
      std::copy(row.begin(), row.end(), out);
      log_sums_[at(q_head, first + i)] = softmax(std::span(out, row.size()), scale);
    }
    multiply({weights.data(), static_cast<std::size_t>(steps), positions, positions}, values,
             outputs_.data() + at(q_head, first) * d, d);
  }
}

void Oracle::rank(int q_head) {
  policy::Ranking ranking;
  std::vector<std::int32_t> best;
  for (int t = 0; t < info().decode_steps; ++t) {
    const std::span<const float> row = scores(q_head, t);
    ranking.rank(row, ranked_, best);
    policy::Cut* const out = ranks_.data() + at(q_head, t) * ranked_;
    for (std::size_t k = 0; k < best.size(); ++k) out[k] = {row[best[k]], best[k]};
  }
}

policy::Cut Oracle::top(int q_head, int t, std::int64_t k, policy::Ranking& ranking) const {
  KVCAST_CHECK(k >= 1 && k <= visible(t));
  const auto index = static_cast<std::size_t>(k) - 1;
  if (index < ranked_) return ranks_[at(q_head, t) * ranked_ + index];
  return ranking.cut(scores(q_head, t), static_cast<std::size_t>(k));
}

}  // namespace kvcast::replay
