#include "replay/steps.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kvcast::replay {
namespace {

// Logarithm of the determinant of a symmetric positive semidefinite n × n matrix, by Cholesky's factorisation in place.
double log_determinant(std::vector<double>& m, std::size_t n) {
  constexpr double kSingular = -std::numeric_limits<double>::infinity();
  double log_product = 0;
  for (std::size_t j = 0; j < n; ++j) {
    double pivot = m[j * n + j];
    const double before = pivot;
    for (std::size_t c = 0; c < j; ++c) pivot -= m[j * n + c] * m[j * n + c];
    if (!(pivot > before * 1e-12)) return kSingular;
    log_product += std::log(pivot);
    const double root = std::sqrt(pivot);
    m[j * n + j] = root;
    for (std::size_t i = j + 1; i < n; ++i) {
      double sum = m[i * n + j];
      for (std::size_t c = 0; c < j; ++c) sum -= m[i * n + c] * m[j * n + c];
      m[i * n + j] = sum / root;
    }
  }
  return log_product;
}

}  // namespace

double log_volume(const MatrixView& keys, std::span<const std::int32_t> positions) {
  if (positions.empty()) return -std::numeric_limits<double>::infinity();
  const std::size_t d = keys.cols;
  if (positions.size() < d) {
    const std::size_t n = positions.size();
    std::vector<double> gram(n * n);
    for (std::size_t i = 0; i < n; ++i) {
      const float* const a = keys.row(static_cast<std::size_t>(positions[i]));
      for (std::size_t j = 0; j <= i; ++j) {
        const float* const b = keys.row(positions[j]);
        for (std::size_t c = 0; c < d; ++c) gram[i * n + j] += a[c] * static_cast<double>(b[c]);
      }
    }
    return log_determinant(gram, n);
  }
  std::vector<double> gram(d * d);
  for (const std::int32_t position : positions) {
    const float* const key = keys.row(position);
    for (std::size_t i = 0; i < d; ++i) {
      const double x = static_cast<double>(key[i]);
      for (std::size_t j = 0; j <= i; ++j) gram[i * d + j] += x * static_cast<double>(key[j]);
    }
  }
  return log_determinant(gram, d);
}

std::optional<double> mean_log_volume(const ReplayResult& result) {
  double sum = 0, n = 0;
  for (const LayerCounts& layer : result.layers) {
    for (const double volume : layer.log_volume) sum += volume, ++n;
  }
  if (n == 0 || !std::isfinite(sum)) return {};
  return sum / n;
}

void write_steps(const ReplayResult& result, std::ostream& out) {
  out << "layer,step,head_kind,head,attended,cpu_attended,scored,candidates,fetched,fetched_runs,evicted,corrected,"
         "query_cosine\n";
  for (const LayerCounts& layer : result.layers) {
    for (int t = 0; t < result.decode_steps; ++t) {
      const std::span<const policy::HeadCounts> heads = layer.at(t);
      for (std::size_t h = 0; h < heads.size(); ++h) {
        const policy::HeadCounts& c = heads[h];
        const std::string cosine = t == 0 ? "" : fmt::format("{:.6f}", layer.query_cosine[t * heads.size() + h]);
        out << fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", layer.layer, t,
                           layer.per_query_head ? "q_head" : "kv_head", h, c.attended, c.cpu_attended, c.scored,
                           c.candidates, c.fetched, c.fetched_runs, c.evicted, c.corrected ? 1 : 0, cosine);
      }
    }
  }
}

}  // namespace kvcast::replay
