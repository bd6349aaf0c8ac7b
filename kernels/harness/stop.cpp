// The rule is that of NVIDIA/nvbench, nvbench/detail/stdrel_criterion.cuh.
#include "harness/stop.hpp"

#include <algorithm>

namespace kvcast::kernels {

namespace {
constexpr std::size_t kNoiseWindow = 64;
constexpr double kSettledSpread = 0.05;
}  // namespace

const char* stop_name(Stop stop) {
  switch (stop) {
    case Stop::kNoise:
      return "noise";
    case Stop::kSettled:
      return "settled";
    case Stop::kTimeout:
      return "timeout";
  }
  return "";
}

void Sampler::add(double seconds, int calls) {
  samples_.push_back(seconds);
  measured_ += seconds * calls;
  running_.add(seconds);
  noises_.push_back(running_.relative_stdev());
}

bool Sampler::settled() const {
  if (noises_.size() < kNoiseWindow) return false;
  const auto first = noises_.end() - static_cast<std::ptrdiff_t>(kNoiseWindow);
  const auto [low, high] = std::minmax_element(first, noises_.end());
  return *low > 0 && *high - *low < kSettledSpread * *low;
}

bool Sampler::done(double elapsed) {
  const bool enough = static_cast<int>(samples_.size()) >= limits_.min_samples && measured_ >= limits_.min_time;
  if (enough && running_.relative_stdev() <= limits_.max_noise) return why_ = Stop::kNoise, true;
  if (enough && settled()) return why_ = Stop::kSettled, true;
  if (elapsed >= limits_.timeout && !samples_.empty()) return why_ = Stop::kTimeout, true;
  return false;
}

}  // namespace kvcast::kernels
