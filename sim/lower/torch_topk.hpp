// torch.topk on a GPU, kernel by kernel (pytorch/pytorch, aten/src/ATen/native/cuda/TensorTopK.cu).
#pragma once

#include <boost/container/small_vector.hpp>

#include "graph/op.hpp"

namespace kvcast::lower {

// The kernels of one call, in order; the first is launched by the operator, the others from inside it.
using TopKKernels = boost::container::small_vector<graph::Work, 16>;
TopKKernels torch_topk(const graph::TopK& work);

inline constexpr double kTorchIndex = 8;  // bytes of a position: torch.long

// Whether several thread blocks share a row: should_use_multiblock's table.
bool shares_rows(double rows, double columns);

}  // namespace kvcast::lower
