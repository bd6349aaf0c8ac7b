// Work that policies state for the kernels that kvcast-kernels measures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/results.hpp"
#include "graph/op.hpp"

namespace kvcast::validate {

struct PolicyWork {
  std::string used_by;             // policies that run the kernel
  std::vector<graph::Work> works;  // one after the other; of the policy whose layer was recorded
};

// Records the layer of a policy in the shape of the measured row. Empty if no policy runs the row's kernel, or none in
// its shape.
std::optional<PolicyWork> policy_work(const calibrate::MeasuredRow& row);

}  // namespace kvcast::validate
