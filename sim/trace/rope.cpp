// Tables are filled by rotating a unit vector from position to position, in double precision and restarted from an
// exact sine and cosine every kBlock positions: no drift, and a hundredth of the cost of calling both for every entry.
#include "trace/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace kvcast::trace {
namespace {

// Llama 3.1: wavelengths below original_context / high_freq_factor are unchanged, above original_context /
// low_freq_factor they grow by the factor, in between the two frequencies are blended.
double llama3_scaled(double frequency, const config::Rope& rope) {
  const double turns = static_cast<double>(rope.original_context) * frequency / (2 * std::numbers::pi);
  if (turns >= rope.high_freq_factor) return frequency;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071): dimensions that turn 32 times and more over the original context are unchanged, those that
// turn less than once grow by the factor, in between the two are blended linearly over the dimensions.
double yarn_scaled(double frequency, int pair, const config::Rope& rope, int head_dim) {
  constexpr double kFast = 32, kSlow = 1;
  const auto pair_of = [&](double turns) {
    return head_dim / 2.0 * std::log(static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi)) /
           std::log(rope.theta);
  };
  const double low = std::max(0.0, std::floor(pair_of(kFast)));
  const double high = std::min(head_dim - 1.0, std::ceil(pair_of(kSlow)));
  const double ramp = std::clamp((pair - low) / std::max(high - low, 1e-3), 0.0, 1.0);
  return frequency * (1 - ramp) + frequency / rope.factor * ramp;
}

}  // namespace

std::vector<double> rope_frequencies(const config::Rope& rope, int head_dim) {
  KVCAST_CHECK(head_dim >= 2 && head_dim % 2 == 0 && rope.theta > 0);
  std::vector<double> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / head_dim);
    if (rope.scaling == config::Rope::Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == config::Rope::Scaling::kLlama3) frequency = llama3_scaled(frequency, rope);
    if (rope.scaling == config::Rope::Scaling::kYarn) frequency = yarn_scaled(frequency, i, rope, head_dim);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RotationTable::RotationTable(std::vector<double> frequencies) : frequencies_(std::move(frequencies)) {
  for (const double f : frequencies_) {
    step_cos_.push_back(std::cos(f));
    step_sin_.push_back(std::sin(f));
  }
}

void RotationTable::fill(std::int64_t first, int n) {
  const std::size_t pairs = frequencies_.size();
  cos_.resize(n * pairs);
  sin_.resize(n * pairs);
  std::vector<double> c(pairs), s(pairs);
  for (int i = 0; i < n; ++i) {
    if (i % kBlock == 0) {
      for (std::size_t p = 0; p < pairs; ++p) {
        const double angle = static_cast<double>(first + i) * frequencies_[p];
        c[p] = std::cos(angle);
        s[p] = std::sin(angle);
      }
    }
    float* const cos_row = cos_.data() + i * pairs;
    float* const sin_row = sin_.data() + i * pairs;
    for (std::size_t p = 0; p < pairs; ++p) {
      cos_row[p] = static_cast<float>(c[p]);
      sin_row[p] = static_cast<float>(s[p]);
      const double turned = c[p] * step_cos_[p] - s[p] * step_sin_[p];
      s[p] = c[p] * step_sin_[p] + s[p] * step_cos_[p];
      c[p] = turned;
    }
  }
}

void RotationTable::rotate(int i, float* vector) const {
  const std::size_t pairs = frequencies_.size();
  const float* const c = cos_.data() + i * pairs;
  const float* const s = sin_.data() + i * pairs;
  float* const low = vector;
  float* const high = vector + pairs;
  for (std::size_t p = 0; p < pairs; ++p) {
    const float turned = low[p] * c[p] - high[p] * s[p];
    high[p] = low[p] * s[p] + high[p] * c[p];
    low[p] = turned;
  }
}

}  // namespace kvcast::trace
