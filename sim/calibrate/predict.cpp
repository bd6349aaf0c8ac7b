#include "calibrate/predict.hpp"

#include <array>
#include <cmath>

#include "hardware/work.hpp"

namespace kvcast::calibrate {

double predict(const config::Gpu& gpu, const MeasuredPoint& point) {
  static constexpr std::array<double, hardware::kResourceCount> kNoRates{};  // demands are not used
  hardware::Terms terms;
  terms.wait("gap between kernels", hardware::number(gpu.gap_graph));
  if (const auto* attention = std::get_if<graph::DecodeAttention>(&point.op.work)) {
    hardware::add_decode_attention(terms, gpu, {}, *attention);
  } else {
    hardware::add_gemm(terms, gpu, std::get<graph::Gemm>(point.op.work));
  }
  return terms.cost(kNoRates.data()).alone;
}

double log_error(const config::Gpu& gpu, const MeasuredPoint& point) {
  return std::log(predict(gpu, point) / point.seconds);
}

metrics::ErrorSummary errors_of(const config::Gpu& gpu, std::span<const MeasuredPoint> points, bool held_out) {
  std::vector<double> errors;
  for (const MeasuredPoint& point : points) {
    if (point.held_out == held_out) errors.push_back(predict(gpu, point) / point.seconds - 1);
  }
  return metrics::summarise_errors(errors);
}

}  // namespace kvcast::calibrate
