// What a softmax is divided by, where its weights themselves are not needed.
#pragma once

#include <span>

namespace kvcast {

// log Σ exp(scale·x), the same number that softmax(x, scale) returns; x stays as it is. n ≥ 1.
double log_sum_exp(std::span<const float> x, float scale = 1.0f);

}  // namespace kvcast
