// Suite `policy_kernels`: kernels that only policies run, predicted by a profile that was not fitted to them.
#pragma once

#include <string>

#include "validate/suite.hpp"

namespace kvcast::validate {

struct PolicyKernelsInput {
  std::string results;  // output of kvcast-kernels (kernels/README.md); empty: the project's own (committed.hpp)
  std::string profile;  // a machine (configs/hardware) that was calibrated where the results were measured
};

// Compares each measured kernel of a policy with the cost of the work that the policy states for it. Throws UserError
// if results are malformed or a row lacks what its work needs.
Suite policy_kernels(const PolicyKernelsInput& input);

}  // namespace kvcast::validate
