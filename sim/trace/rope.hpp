// Rotary position embedding in the half-split form: channels i and i + d/2 are one pair, rotated by position ·
// frequency.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model.hpp"

namespace kvcast::trace {

// Radians per token of each of the head_dim / 2 pairs, fastest first, scaled as the model says (linear: Chen et al.
// 2023, arXiv:2306.15595; llama3: the rule released with Llama 3.1).
std::vector<double> rope_frequencies(const config::Rope& rope, int head_dim);

// Cosine and sine of every pair at a run of positions, [position][pair] in single precision.
class RotationTable {
 public:
  explicit RotationTable(std::vector<double> frequencies);

  int pairs() const { return static_cast<int>(frequencies_.size()); }
  // Fills the table for positions first .. first + n − 1. The same position gives the same bits in every run, if runs
  // begin at multiples of kBlock.
  void fill(std::int64_t first, int n);
  // Rotates the vector in place to the i-th position of the run.
  void rotate(int i, float* vector) const;

  static constexpr int kBlock = 64;

 private:
  std::vector<double> frequencies_, step_cos_, step_sin_;
  std::vector<float> cos_, sin_;
};

}  // namespace kvcast::trace
