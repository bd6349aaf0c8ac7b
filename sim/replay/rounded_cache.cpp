#include "replay/rounded_cache.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/float8.hpp"
#include "base/parallel.hpp"
#include "trace/dtype.hpp"

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

// Multiplies by the Hadamard matrix of order row.size(), a power of two, divided by its square root.
void rotate(std::span<float> row) {
  KVCAST_CHECK(!row.empty() && (row.size() & (row.size() - 1)) == 0);
  for (std::size_t half = 1; half < row.size(); half *= 2) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if ((i & half) != 0) continue;
      const float a = row[i], b = row[i + half];
      row[i] = a + b, row[i + half] = a - b;
    }
  }
  const float scale = 1 / std::sqrt(static_cast<float>(row.size()));
  for (float& x : row) x *= scale;
}

float length(std::span<const float> row) {
  float sum = 0;
  for (const float x : row) sum += x * x;
  return std::sqrt(sum);
}

// codebook: its positive half, in standard deviations of a coordinate.
void round_rotated(std::span<float> row, std::span<const float> codebook) {
  const float norm = length(row), root = std::sqrt(static_cast<float>(row.size()));
  if (norm <= 0) return;
  rotate(row);
  for (float& x : row) {
    const float size = std::abs(x) / norm * root;
    std::size_t i = 0;
    while (i + 1 < codebook.size() && size > (codebook[i] + codebook[i + 1]) / 2) ++i;
    x = std::copysign(codebook[i], x);
  }
  const float scale = trace::half_to_float(trace::float_to_half(norm)) / length(row);
  for (float& x : row) x *= scale;
  rotate(row);
}

// J. Max, Quantizing for minimum distortion, 1960, to more digits.
constexpr float kMax16[] = {0.128395f, 0.388048f, 0.656759f, 0.942340f, 1.256231f, 1.618046f, 2.069017f, 2.732590f};
constexpr float kMax8[] = {0.245094f, 0.756005f, 1.343909f, 2.151946f};

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
    case config::Precision::kInt3:
      return round_evenly(row, 3);
    case config::Precision::kCodebook4:
      return round_rotated(row, kMax16);
    case config::Precision::kCodebook3:
      return round_rotated(row, kMax8);
    case config::Precision::kNvfp4:
      return round_blocks(row, 16, [](float largest) { return nearest_e4m3(largest / 6); });
    case config::Precision::kMxfp4:
      return round_blocks(row, 32, [](float largest) { return std::ldexp(1.0f, std::ilogb(largest) - 2); });
  }
}

std::unique_ptr<trace::Layer> with_rounded_cache(const trace::Layer& layer, config::CacheFormat format, int threads) {
  const trace::TraceInfo& info = layer.info();
  if (format.rotated() && (info.head_dim & (info.head_dim - 1)) != 0) {
    throw UserError(
        fmt::format("kv_cache: the rotation of {} needs heads of a power of two of numbers, and the trace has {}",
                    config::cache_name(format), info.head_dim));
  }
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
