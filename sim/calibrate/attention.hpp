// Fits the parameters of decode attention to measured times.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/points.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {

// The discrete choices of the kernel's scheduler, which gradient-based fitting cannot find.
struct AttentionStructure {
  double tile, part, parts;
};

struct AttentionFit {
  int candidates = 0;                          // structures tried
  double left_out_loss = 0;                    // loss of the chosen structure on the folds that it was not fitted to
  double left_out_spread = 0;                  // 80th percentile of its relative errors there
  std::vector<AttentionStructure> contenders;  // those with about the same loss there, the chosen one first
  std::vector<std::string> at_bounds;          // keys of numbers that ended at a bound
};

// Sets the attention parameters of gpu, including their range, from the points that are not held out: those of one
// kernel on one device. The structure (tile, part, parts) is the best one in four-fold cross-validation over whole
// (batch, context) pairs, so that no fold has seen the context that it is tested on. Points beyond twice the L2, which
// determine step times, count three times. Residuals of the terms become gpu.attention_correction, if that gains a
// tenth in the same cross-validation. Numbers that the points do not identify stay near those of `prior`; none read
// faster than a stream. Throws UserError if there are too few points.
AttentionFit fit_attention(std::span<const MeasuredPoint> points, const config::Gpu& prior, config::Gpu& gpu);

// Refits the terms for this structure, to see how they vary with slightly different points.
void refit_attention(std::span<const MeasuredPoint> points, const config::Gpu& prior,
                     const AttentionStructure& structure, config::Gpu& gpu);

// Fits without a prior, for a framework, which may run another kernel if every query head has its own KV head
// (TensorRT-LLM does: masked multi-head attention there, XQA for shared ones): gpu.attention_mha is set if two kernels,
// each with its structure, lower the loss in cross-validation by a fifth, and empty otherwise.
AttentionFit fit_attention_by_heads(std::span<const MeasuredPoint> points, config::Gpu& gpu);

}  // namespace kvcast::calibrate
