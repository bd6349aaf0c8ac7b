#include "replay/rounded_cache.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/float8.hpp"
#include "base/parallel.hpp"

namespace kvcast::replay {
namespace {

void round_evenly(std::span<float> row, int bits) {
  const auto [low, high] = std::minmax_element(row.begin(), row.end());
  const float zero = *low, step = (*high - *low) / static_cast<float>((1 << bits) - 1);
  if (step <= 0) return;
  for (float& x : row) x = zero + std::nearbyint((x - zero) / step) * step;
}

}  // namespace

void round_cached(config::Precision precision, std::span<float> row) {
  switch (precision) {
    case config::Precision::kBf16:
      return;
    case config::Precision::kFp8:
      for (float& x : row) x = nearest_e4m3(x);
      return;
    case config::Precision::kInt8:
      return round_evenly(row, 8);
    case config::Precision::kInt4:
      return round_evenly(row, 4);
    default:
      KVCAST_CHECK(!"a format of a cache");
  }
}

std::unique_ptr<trace::Layer> with_rounded_cache(const trace::Layer& layer, config::Precision precision, int threads) {
  const trace::TraceInfo& info = layer.info();
  auto copy = std::make_unique<trace::Layer>(info, layer.id(), layer.cancel());
  const auto d = static_cast<std::size_t>(info.head_dim), rows = static_cast<std::size_t>(info.positions());
  const auto round_rows = [&](const float* from, float* to) {
    std::copy_n(from, rows * d, to);
    for (std::size_t i = 0; i < rows; ++i) {
      if (i % 1024 == 0) layer.cancel().check();
      round_cached(precision, {to + i * d, d});
    }
  };
  parallel_for(static_cast<std::size_t>(info.n_kv_heads), threads, [&](std::size_t head) {
    const int h = static_cast<int>(head);
    round_rows(layer.keys(h).row(0), copy->mutable_keys(h));
    round_rows(layer.values(h).row(0), copy->mutable_values(h));
  });
  for (int h = 0; h < info.n_q_heads; ++h) {
    std::copy_n(layer.queries(h).row(0), static_cast<std::size_t>(info.n_queries()) * d, copy->mutable_queries(h));
  }
  if (info.hidden > 0) {
    std::copy_n(layer.hidden().row(0), static_cast<std::size_t>(info.n_queries() * info.hidden),
                copy->mutable_hidden());
  }
  copy->compute_scores(threads);
  return copy;
}

}  // namespace kvcast::replay
