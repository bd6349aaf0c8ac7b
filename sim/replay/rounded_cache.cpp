#include "replay/rounded_cache.hpp"

#include <algorithm>
#include <cmath>

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

// The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 with either sign, ties to even.
float nearest_e2m1(float x) {
  const float size = std::abs(x), step = size < 2 ? 0.5f : size < 4 ? 1.0f : 2.0f;
  return std::copysign(std::min(std::nearbyint(size / step) * step, 6.0f), x);
}

// scale_of: from a block's largest size.
template <typename ScaleOf>
void round_blocks(std::span<float> row, std::size_t block, const ScaleOf& scale_of) {
  for (std::size_t i = 0; i < row.size(); i += block) {
    const std::span<float> part = row.subspan(i, std::min(block, row.size() - i));
    float largest = 0;
    for (const float x : part) largest = std::max(largest, std::abs(x));
    const float scale = largest > 0 ? scale_of(largest) : 0;
    for (float& x : part) x = scale > 0 ? nearest_e2m1(x / scale) * scale : 0;
  }
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
    case config::Precision::kNvfp4:
      return round_blocks(row, 16, [](float largest) { return nearest_e4m3(largest / 6); });
    case config::Precision::kMxfp4:
      return round_blocks(row, 32, [](float largest) { return std::ldexp(1.0f, std::ilogb(largest) - 2); });
  }
}

std::unique_ptr<trace::Layer> with_rounded_cache(const trace::Layer& layer, config::CacheFormat format, int threads) {
  const trace::TraceInfo& info = layer.info();
  auto copy = std::make_unique<trace::Layer>(info, layer.id(), layer.cancel());
  const auto d = static_cast<std::size_t>(info.head_dim), rows = static_cast<std::size_t>(info.positions());
  const auto round_rows = [&](config::Precision precision, const float* from, float* to) {
    std::copy_n(from, rows * d, to);
    for (std::size_t i = 0; i < rows; ++i) {
      if (i % 1024 == 0) layer.cancel().check();
      round_cached(precision, {to + i * d, d});
    }
  };
  parallel_for(static_cast<std::size_t>(info.n_kv_heads), threads, [&](std::size_t head) {
    const int h = static_cast<int>(head);
    round_rows(format.keys, layer.keys(h).row(0), copy->mutable_keys(h));
    round_rows(format.values, layer.values(h).row(0), copy->mutable_values(h));
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
