// Ops of which the layers of a model are made, one kernel each. Values are in 16 bits unless a function says otherwise.
#pragma once

#include "config/model.hpp"
#include "lower/block.hpp"

namespace kvcast::lower {

inline constexpr double kBytes = config::Model::kElementBytes;

// A kernel that reads and writes so many values.
graph::Kernel streaming(double read_values, double write_values);
graph::OpId small(LoweredBlock& block, const char* label, double read_values, double write_values, graph::OpId after);
// The norm of `rows` rows of the residual stream, with the addition of the branch before; hyper-connections first mix
// streams, and residuals that attention weighs are summed.
graph::OpId norm(LoweredBlock& block, const config::Model& model, double rows, graph::OpId after);
// The format in which matrices of this precision are multiplied.
graph::Products products_of(config::Precision precision);
// A product of `rows` rows with a matrix of n outputs and k inputs.
graph::Gemm product(config::Precision precision, double rows, double n, double k);
graph::OpId gemm(LoweredBlock& block, const char* label, const graph::Gemm& work, graph::OpId after);
// None among fewer than two ranks.
graph::OpId exchange(LoweredBlock& block, const char* label, const graph::Collective& work, graph::OpId after);
graph::OpId all_reduce(LoweredBlock& block, const config::Model& model, double rows, graph::OpId after);

}  // namespace kvcast::lower
