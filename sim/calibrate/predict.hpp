// Predictions of the cost model for measured points, for fits that need many of them.
#pragma once

#include <span>

#include "calibrate/points.hpp"
#include "config/hardware.hpp"
#include "metrics/errors.hpp"

namespace kvcast::calibrate {

// Seconds of the point's kernel on this GPU, in a CUDA graph; a GEMM or decode attention.
double predict(const config::Gpu& gpu, const MeasuredPoint& point);

// log(predicted / measured)
double log_error(const config::Gpu& gpu, const MeasuredPoint& point);

// Relative errors of the points, either of those that are held out or of the others.
metrics::ErrorSummary errors_of(const config::Gpu& gpu, std::span<const MeasuredPoint> points, bool held_out);

}  // namespace kvcast::calibrate
