// Smooths a model's residuals of measured numbers over three coordinates: Gaussian process regression (Rasmussen and
// Williams, 2006, section 2.2) with mean 0 and a Matérn 3/2 covariance, so that the correction vanishes far from any
// sample.
#pragma once

#include <array>
#include <memory>
#include <span>

namespace kvcast::calibrate {

using Coordinates = std::array<double, 3>;

struct SmoothSample {
  Coordinates at{};
  double value = 0;
  double weight = 1;  // in the loss of cross-validation, > 0
  int fold = 0;       // samples of a fold are left out together, 0 <= fold < kSmoothFolds
};
inline constexpr int kSmoothFolds = 4;

struct Smoothness {
  Coordinates lengths{1, 1, 1};  // correlation lengths
  double noise = 0.1;            // ratio of the variance of independent noise to that of the smooth part
};

class Surface {
 public:
  // Needs at least one sample.
  Surface(std::span<const SmoothSample> samples, const Smoothness& smoothness);
  ~Surface();
  double at(const Coordinates& where) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

struct Smoothing {
  Smoothness smoothness;
  // loss of samples without smoothing, and of left-out samples when the others are smoothed
  double loss_before = 0, loss = 0;
  double spread =
      0;  // 80th percentile of the relative errors of left-out samples, values being log(measured / modelled)
};

// Returns the smoothness that predicts left-out folds best, from a grid.
Smoothing choose_smoothness(std::span<const SmoothSample> samples);

}  // namespace kvcast::calibrate
