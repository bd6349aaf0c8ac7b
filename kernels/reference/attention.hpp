// References: slow, in double precision, and as close to the formula as code can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcast::kernels::reference {

struct Attention {
  std::vector<float> out;  // dim numbers
  float lse;               // log of the sum of exp(logits), natural
};

// softmax(scale · q·K + bias) · V for one query over tokens rows of dim numbers. bias: one for each token, or null.
Attention attend(const float* q, const float* keys, const float* values, std::size_t tokens, std::size_t dim,
                 double scale, const float* bias = nullptr);

// The two halves of an attention over disjoint tokens, joined.
Attention merge(const Attention& a, const Attention& b);

// Indices of the k largest, larger first, lower index first among equals.
std::vector<std::uint32_t> top_k(const float* scores, std::size_t n, std::size_t k);

}  // namespace kvcast::kernels::reference
