// The course in time is that of one kernel on an H100, FlashAttention over 900K tokens (CURRENTF/Sparse-vLLM,
// docs/benchmarking/deltakv-rawkv-offload-experiments): 391 TFLOP/s for 0.27 s and 0.91, 0.87, 0.82 and 0.76 of that
// for 0.6, 1.2, 2.5 and 5.3 s.
#include "hardware/sustained.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast::hardware {
namespace {

constexpr double kBegins = 0.25, kSettled = 4;  // seconds

// 0 while the board has its boost clock, 1 once it has settled.
double course(double seconds) {
  return std::clamp(std::log(seconds / kBegins) / std::log(kSettled / kBegins), 0.0, 1.0);
}

}  // namespace

double sustained_share(const config::Gpu& gpu, double seconds) {
  return 1 - (1 - gpu.sustained_rate) * course(seconds);
}

config::Hardware sustained(const config::Hardware& hardware, double seconds) {
  config::Hardware slower = hardware;
  const Value& rate = hardware.gpu.sustained_rate;
  Value& products = slower.gpu.tensor_flops;
  const double share = sustained_share(hardware.gpu, seconds);
  products.value *= share;
  products.origin = worse(products.origin, rate.origin);
  products.uncertainty = std::hypot(products.uncertainty, rate.uncertainty * rate * course(seconds) / share);
  products.source = rate.source;
  return slower;
}

}  // namespace kvcast::hardware
