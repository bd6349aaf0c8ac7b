// Only the attended tokens are read: with the log-sum of full attention known, the mass kept is exp(log-sum over
// attended − log-sum over all), and the same softmax gives the weights of the output.
#include "replay/accuracy.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvcast::replay {

void AccuracyMeter::measure(int t, const policy::LayerSelection& selection, const policy::Selector& selector,
                            std::vector<HeadAccuracy>& out) {
  const trace::TraceInfo& info = oracle_.info();
  const int n = selection.per_query_head ? 1 : info.group();
  KVCAST_CHECK(static_cast<int>(selection.heads.size()) * n == info.n_q_heads);
  for (std::size_t i = 0; i < selection.heads.size(); ++i) {
    const int first = static_cast<int>(i) * n;
    measure_group(t, first, n, selection.heads[i].attended, out);
    for (int g = 0; g < n; ++g) {
      const std::span<const float> own = selector.output(first + g);
      if (own.empty() || selection.heads[i].attended.empty()) continue;
      KVCAST_CHECK(static_cast<int>(own.size()) == info.head_dim);
      out[out.size() - (n - g)].output_error = error_of(t, first + g, own.data());
    }
  }
}

double AccuracyMeter::error_of(int t, int q_head, const float* output) const {
  const std::span<const float> full = oracle_.output(q_head, t);
  double error = 0, norm = 0;
  for (std::size_t j = 0; j < full.size(); ++j) {
    const double x = full[j], difference = output[j] - x;
    error += difference * difference, norm += x * x;
  }
  return norm > 0 ? std::sqrt(error / norm) : 0;
}

void AccuracyMeter::measure_group(int t, int first, int n, const std::vector<std::int32_t>& attended,
                                  std::vector<HeadAccuracy>& out) {
  const std::size_t count = attended.size(), d = oracle_.info().head_dim;
  KVCAST_CHECK(count == 0 || (attended.front() >= 0 && attended.back() < oracle_.visible(t)));
  const bool all = static_cast<std::int64_t>(count) == oracle_.visible(t) && !oracle_.rounded();
  if (count == 0 || all) {
    // Nothing read: no mass, an output of zero. Everything read: full attention itself.
    out.insert(out.end(), n, count == 0 ? HeadAccuracy{0, 1, 0} : HeadAccuracy{});
    return;
  }
  weights_.resize(n * count);
  const std::size_t begin = out.size();
  for (int i = 0; i < n; ++i) {
    const std::span row(weights_.data() + i * count, count);
    out.push_back(measure_head(t, first + i, attended, row));
  }
  oracle_.input().layer().value_rows(first / oracle_.info().group(), attended, values_);
  outputs_.resize(n * d);
  multiply_rows({weights_.data(), static_cast<std::size_t>(n), count, count}, values_, d, outputs_.data(), d);
  for (int i = 0; i < n; ++i) {
    out[begin + i].output_error = error_of(t, first + i, outputs_.data() + i * d);
  }
}

HeadAccuracy AccuracyMeter::measure_head(int t, int q_head, const std::vector<std::int32_t>& attended,
                                         std::span<float> weights) {
  const std::span<const float> scores = oracle_.scores(q_head, t);
  const policy::Cut top = oracle_.top(q_head, t, attended.size(), ranking_);
  std::int64_t shared = 0;
  for (std::size_t i = 0; i < attended.size(); ++i) {
    weights[i] = scores[attended[i]];
    shared += top.holds(weights[i], attended[i]) ? 1 : 0;
  }
  const double kept = softmax(weights, 1.0f / std::sqrt(static_cast<float>(oracle_.info().head_dim)));
  if (oracle_.rounded()) {  // the weights come from the scores of the rounded cache
    const float* const cached = oracle_.input().layer().decode_scores(q_head).row(t);
    for (std::size_t i = 0; i < attended.size(); ++i) weights[i] = cached[attended[i]];
    softmax(weights, 1.0f / std::sqrt(static_cast<float>(oracle_.info().head_dim)));
  }
  HeadAccuracy result;
  result.recall_mass = std::min(1.0, std::exp(kept - oracle_.log_sum_exp(q_head, t)));
  result.topk_overlap = static_cast<double>(shared) / static_cast<double>(attended.size());
  return result;
}

}  // namespace kvcast::replay
