// Suite `policy_kernels`: kernels that only policies run, predicted by a profile that was not fitted to them.
#pragma once

#include "validate/committed.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// input: results of kvcast-kernels (kernels/README.md) and their profile; empty for the project's own.
// Compares each measured kernel of a policy with the cost of the work that the policy states for it. Throws UserError
// if results are malformed or a row lacks what its work needs.
Suite policy_kernels(const Measured& input);

}  // namespace kvcast::validate
