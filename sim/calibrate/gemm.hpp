// Fits the parameters of GEMMs to measured times.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/points.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {

struct GemmFit {
  int memory_points = 0;               // of gemm_memory_efficiency
  double left_out_loss = 0;            // of the chosen one on the weight matrices that it was not fitted to
  double left_out_p90 = 0;             // and of its relative errors there
  std::vector<std::string> at_bounds;  // keys of numbers that ended at a bound
};

// Sets the GEMM parameters of gpu, their range among them, from the points that are not held out. Whether the memory
// efficiency is one number or depends on the size of the weights is what does better when whole weight matrices are
// left out. Points beyond twice the L2 count three times. Numbers that the points do not tell apart stay near those of
// `prior`, if any. UserError where there are too few points.
GemmFit fit_gemm(std::span<const MeasuredPoint> points, const config::Gpu* prior, config::Gpu& gpu);

}  // namespace kvcast::calibrate
