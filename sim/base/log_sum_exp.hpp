// The normaliser of a softmax, for callers that do not need the weights.
#pragma once

#include <span>

namespace kvcast {

// log Σ exp(scale·x), the same number that softmax(x, scale) returns; x stays as it is. n ≥ 1.
double log_sum_exp(std::span<const float> x, float scale = 1.0f);

}  // namespace kvcast
