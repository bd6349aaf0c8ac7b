// Residuals of the fitted terms of decode attention, as a factor that depends on the shape.
#pragma once

#include <optional>
#include <span>
#include <variant>

#include "calibrate/points.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {

inline const graph::DecodeAttention& attention_of(const MeasuredPoint& point) {
  return std::get<graph::DecodeAttention>(point.op.work);
}

// The fold in which a point is left out: folds run along the diagonals of the (batch, context) table, so that a pair is
// left out whole.
int attention_fold(const MeasuredPoint& point);

struct FittedCorrection {
  config::AttentionCorrection correction;
  double loss = 0;    // loss in cross-validation, with the correction
  double spread = 0;  // 80th percentile of the relative errors there
};

// Fits the correction of gpu's terms to these points, of one kernel on one device: their ratios smoothed (smooth.hpp)
// on the powers of two of rows and tokens. Returns nothing if that gains less than a tenth in cross-validation over
// whole pairs of batch and context. gpu has no correction yet.
std::optional<FittedCorrection> fit_correction(std::span<const MeasuredPoint> points, const config::Gpu& gpu);

}  // namespace kvcast::calibrate
