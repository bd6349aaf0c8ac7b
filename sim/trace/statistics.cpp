#include "trace/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvcast::trace {
namespace {

double norm(const float* x, std::size_t n) { return std::sqrt(static_cast<double>(dot(x, x, n))); }

double cosine(const float* a, const float* b, std::size_t n) {
  const double lengths = norm(a, n) * norm(b, n);
  return lengths > 0 ? dot(a, b, n) / lengths : 0;
}

std::vector<float> mean_row(const MatrixView& m) {
  std::vector<double> sum(m.cols);
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t c = 0; c < m.cols; ++c) sum[c] += static_cast<double>(m.row(i)[c]);
  }
  std::vector<float> mean(m.cols);
  for (std::size_t c = 0; c < m.cols; ++c) mean[c] = static_cast<float>(sum[c] / static_cast<double>(m.rows));
  return mean;
}

// Positions of the k largest, ascending.
std::vector<std::size_t> top_positions(std::span<const float> x, std::size_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](std::size_t a, std::size_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; };
  std::nth_element(order.begin(), order.begin() + k, order.end(), better);
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

double entropy(std::span<const float> p) {
  double h = 0;
  for (const float v : p) {
    if (v > 0) h -= static_cast<double>(v) * std::log(static_cast<double>(v));
  }
  return h;
}

double sum(std::span<const float> p) {
  double total = 0;
  for (const float v : p) total += v;
  return total;
}

class HeadReader {
 public:
  HeadReader(const Layer& layer, const Targets& targets, int q) : layer_(layer), targets_(targets), q_(q) {}

  HeadStatistics read() {
    const int steps = layer_.info().decode_steps;
    for (int t = 0; t < steps; ++t) add_step(t);
    for (double* total : {&out_.sink_mass, &out_.recent_mass, &out_.own_mass, &out_.effective_tokens}) *total /= steps;
    out_.target_mass = with_targets_ > 0 ? out_.target_mass / with_targets_ : 0;
    out_.query_cosine = steps > 1 ? out_.query_cosine / (steps - 1) : 1;
    out_.top_overlap = steps > 1 ? out_.top_overlap / (steps - 1) : 1;
    add_means();
    return out_;
  }

 private:
  void add_step(int t) {
    const std::size_t n = static_cast<std::size_t>(layer_.info().prompt_tokens + t) + 1;
    const auto d = static_cast<std::size_t>(layer_.info().head_dim);
    const float* const scores = layer_.decode_scores(q_).row(static_cast<std::size_t>(t));
    std::vector<float> p(scores, scores + n);
    softmax(p, 1 / std::sqrt(static_cast<float>(d)));
    const std::size_t recent = std::min<std::size_t>(n, HeadStatistics::kRecent);
    out_.sink_mass += static_cast<double>(p.front());
    out_.own_mass += static_cast<double>(p.back());
    out_.recent_mass += sum(std::span(p).last(recent));
    if (!std::isfinite(out_.recent_mass)) return;  // scores overflowed: nothing can be ranked
    out_.effective_tokens += std::exp(entropy(p));
    if (!targets_[static_cast<std::size_t>(t)].empty()) {
      ++with_targets_;
      for (const std::int64_t i : targets_[static_cast<std::size_t>(t)]) {
        out_.target_mass += static_cast<double>(p[static_cast<std::size_t>(i)]);
      }
    }
    const std::size_t k = std::max<std::size_t>(1, n / 16);
    const std::vector<std::size_t> top = top_positions(p, k);
    if (t > 0) {
      out_.query_cosine += cosine(layer_.decode_query(q_, t - 1), layer_.decode_query(q_, t), d);
      std::vector<std::size_t> both;
      std::set_intersection(top.begin(), top.end(), before_.begin(), before_.end(), std::back_inserter(both));
      out_.top_overlap += static_cast<double>(both.size()) / static_cast<double>(k);
    }
    before_ = top;
  }

  void add_means() {
    const TraceInfo& info = layer_.info();
    MatrixView decode = layer_.queries(q_);
    decode.data = layer_.decode_query(q_, 0);
    decode.rows = info.decode_steps;
    const std::vector<float> query = mean_row(decode);
    const MatrixView keys = layer_.keys(q_ / info.group());
    out_.key_mean_cosine = cosine(query.data(), mean_row(keys).data(), keys.cols);
  }

  const Layer& layer_;
  const Targets& targets_;
  const int q_;
  HeadStatistics out_;
  int with_targets_ = 0;
  std::vector<std::size_t> before_;
};

}  // namespace

std::vector<HeadStatistics> head_statistics(const Layer& layer, const Targets& targets, int threads) {
  const TraceInfo& info = layer.info();
  KVCAST_CHECK(targets.size() == static_cast<std::size_t>(info.decode_steps));
  layer.compute_scores(threads);
  std::vector<HeadStatistics> heads(info.n_q_heads);
  parallel_for(heads.size(), threads,
               [&](std::size_t q) { heads[q] = HeadReader(layer, targets, static_cast<int>(q)).read(); });
  return heads;
}

KeyStatistics key_statistics(const Layer& layer, int kv_head) {
  const MatrixView keys = layer.keys(kv_head), values = layer.values(kv_head);
  KeyStatistics out;
  const std::vector<float> mean = mean_row(keys);
  const std::size_t high = keys.cols / 2;  // pair 0 is channels 0 and d/2
  double square = 0;
  for (std::size_t i = 0; i < keys.rows; ++i) {
    const double length = norm(keys.row(i), keys.cols);
    out.norm_mean += length;
    out.norm_max = std::max(out.norm_max, length);
    out.value_norm_mean += norm(values.row(i), values.cols);
    out.anisotropy += cosine(keys.row(i), mean.data(), keys.cols);
    square += std::pow(static_cast<double>(keys.row(i)[0]), 2) + std::pow(static_cast<double>(keys.row(i)[high]), 2);
  }
  const auto n = static_cast<double>(keys.rows);
  for (double* total : {&out.norm_mean, &out.value_norm_mean, &out.anisotropy}) *total /= n;
  const double root = std::sqrt(square / n);
  if (root > 0) out.fast_pair_mean = std::hypot(static_cast<double>(mean[0]), static_cast<double>(mean[high])) / root;
  return out;
}

}  // namespace kvcast::trace
