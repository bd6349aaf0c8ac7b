// Traces in memory for tests: random ones of any shape, and ones whose numbers a test writes itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "base/random.hpp"
#include "trace/trace.hpp"

namespace kvcast::tests {

struct TraceShape {
  int kv_heads = 2;
  int group = 1;
  int head_dim = 8;
  std::int64_t prompt = 40;
  int steps = 4;
  std::int64_t window = 8;  // captured prompt queries, at most the prompt
  std::vector<int> layers = {0};
  int n_layers = 4;
};

// Stores a function that fills a layer; layers are filled again at each load.
class MemoryTrace final : public trace::Trace {
 public:
  using Fill = std::function<void(trace::Layer&)>;

  MemoryTrace(const TraceShape& shape, Fill fill) : fill_(std::move(fill)) {
    info_.model = "test";
    info_.source = "synthetic";
    info_.layers = shape.layers;
    info_.n_layers = shape.n_layers;
    info_.n_q_heads = shape.kv_heads * shape.group;
    info_.n_kv_heads = shape.kv_heads;
    info_.head_dim = shape.head_dim;
    info_.rope_theta = 10000;
    info_.prompt_tokens = shape.prompt;
    info_.decode_steps = shape.steps;
    const std::int64_t window = std::min(shape.window, shape.prompt);
    info_.query_positions.resize(static_cast<std::size_t>(window + shape.steps));
    std::iota(info_.query_positions.begin(), info_.query_positions.end(), shape.prompt - window);
  }

  std::string identity() const override { return "memory"; }

 private:
  std::unique_ptr<trace::Layer> make_layer(std::size_t layer_index, int, const Cancel& cancel,
                                           trace::LayerStorage storage) const override {
    auto layer = std::make_unique<trace::Layer>(info_, info_.layers.at(layer_index), cancel, std::move(storage));
    fill_(*layer);
    return layer;
  }

  Fill fill_;
};

enum class Grain {
  kSingle,    // single precision
  kHalf,      // 11 significant bits, as F16 inputs have
  kQuarters,  // multiples of 1/4 below 2: sums of products are exact, and scores tie often
};

inline float grain(double x, Grain kind) {
  if (kind == Grain::kQuarters) return static_cast<float>(std::round(4 * std::clamp(x, -2.0, 2.0)) / 4);
  if (kind == Grain::kSingle || x == 0) return static_cast<float>(x);
  const double unit = std::exp2(std::floor(std::log2(std::abs(x))) - 10);
  return static_cast<float>(std::round(x / unit) * unit);
}

// Normal numbers. Queries drift from step to step (correlation 0.9), so that selections overlap as they do in models.
inline MemoryTrace random_trace(const TraceShape& shape, std::uint64_t seed, Grain kind = Grain::kSingle) {
  return MemoryTrace(shape, [seed, kind](trace::Layer& layer) {
    const trace::TraceInfo& info = layer.info();
    const Stream stream = Stream(seed).child({static_cast<std::uint64_t>(layer.id())});
    // Each number after the first row is `keep` times the one in the row before, plus new randomness.
    const auto fill = [&](float* out, std::int64_t n, std::int64_t row, double keep, const Stream& s) {
      std::vector<double> last(static_cast<std::size_t>(row));
      for (std::int64_t i = 0; i < n; ++i) {
        double& x = last[static_cast<std::size_t>(i % row)];
        const double fresh = s.normal(static_cast<std::uint64_t>(i));
        x = i < row ? fresh : keep * x + std::sqrt(1 - keep * keep) * fresh;
        out[i] = grain(x, kind);
      }
    };
    const std::int64_t d = info.head_dim, cached = info.positions() * d;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      const auto name = static_cast<std::uint64_t>(h);
      fill(layer.mutable_keys(h), cached, d, 0, stream.child({1, name}));
      fill(layer.mutable_values(h), cached, d, 0, stream.child({2, name}));
    }
    for (int h = 0; h < info.n_q_heads; ++h) {
      fill(layer.mutable_queries(h), info.n_queries() * d, d, 0.9, stream.child({3, static_cast<std::uint64_t>(h)}));
    }
  });
}

}  // namespace kvcast::tests
