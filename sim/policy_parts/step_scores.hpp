// Scores of transformed queries, and attention outputs over lists of tokens, which several retrieval policies compute
// at every decode step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/floats.hpp"
#include "base/matrix.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// Products of some queries of every decode step with all rows of `keys`, computed by matrix products over a block of
// steps.
class StepScores {
 public:
  // Writes query `row` of step t, keys.cols floats.
  using Query = std::function<void(int t, std::size_t row, std::span<float> out)>;
  // `rows` queries per step. The data of `keys`, and the objects that `query` refers to, must outlive this object.
  StepScores(MatrixView keys, int steps, std::size_t rows, Query query);
  // Returns keys.rows unscaled products, valid until a step of another block is requested; fast if steps ascend.
  std::span<const float> row(int t, std::size_t row);
  std::size_t rows() const { return rows_; }

 private:
  void make_block(int first);
  MatrixView keys_;
  int steps_;
  std::size_t rows_;
  Query query_;
  int block_ = 0, block_steps_ = 0;
  std::vector<float> queries_;
  Floats scores_;
  std::size_t room_ = 0;  // capacity of scores_
};

// Ascending indices of the n entries with the largest Σ over the group of |q_j| at step t; ties go to the lower index.
std::vector<std::int32_t> largest_dims(const trace::Layer& layer, int kv_head, int t, std::size_t n);

// Computes softmax(q·k / √d)·V of a query head at decode step t over the listed tokens, which must not be empty;
// head_dim floats.
void attend_to(const trace::Layer& layer, int q_head, int t, std::span<const std::int32_t> tokens,
               std::span<float> out);

}  // namespace kvcast::policy
