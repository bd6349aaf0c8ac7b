// Suite `policy_kernels`: kernels that only policies run, as predicted by a profile that was not fitted to them.
#pragma once

#include <string>

#include "validate/suite.hpp"

namespace kvcast::validate {

struct PolicyKernelsInput {
  std::string results;  // of kvcast-kernels (kernels/README.md); empty: the suite says how to make them
  std::string profile;  // a machine (configs/hardware) that was calibrated where the results are from
};

// Compares each measured kernel of a policy with the cost of the work that the policy states for it. UserError for
// malformed results, and for rows that lack what their work needs.
Suite policy_kernels(const PolicyKernelsInput& input);

}  // namespace kvcast::validate
