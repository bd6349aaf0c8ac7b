// Fits the parameters of GEMMs to measured times.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/points.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {

struct GemmFit {
  int memory_points = 0;               // points of gemm_memory_efficiency
  double left_out_loss = 0;            // loss of the chosen form on the weight matrices that it was not fitted to
  double left_out_spread = 0;          // 80th percentile of its relative errors there
  std::vector<std::string> at_bounds;  // keys of numbers that ended at a bound
};

// Sets the GEMM parameters of gpu, including their range, from the points that are not held out. Whether the memory
// efficiency is a single number or depends on the size of the weights is decided by leaving out whole weight matrices.
// Points beyond twice the L2 count three times. Numbers that the points do not identify stay near those of `prior`, if
// any. Throws UserError if there are too few points.
GemmFit fit_gemm(std::span<const MeasuredPoint> points, const config::Gpu* prior, config::Gpu& gpu);

}  // namespace kvcast::calibrate
