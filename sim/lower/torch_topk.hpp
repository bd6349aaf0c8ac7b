// torch.topk on a GPU, kernel by kernel (pytorch/pytorch, aten/src/ATen/native/cuda/TensorTopK.cu).
#pragma once

#include <boost/container/small_vector.hpp>

#include "graph/op.hpp"

namespace kvcast::lower {

// Kernels of one call, in order; the operator launches the first one directly, and the others from inside it.
using TopKKernels = boost::container::small_vector<graph::Work, 16>;
TopKKernels torch_topk(const graph::TopK& work);

inline constexpr double kTorchIndex = 8;  // bytes of a position: torch.long

// Returns whether several thread blocks share a row, by the table of should_use_multiblock.
bool shares_rows(double rows, double columns);

}  // namespace kvcast::lower
