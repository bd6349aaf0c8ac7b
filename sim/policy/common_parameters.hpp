// Parameters that every policy accepts.
#pragma once

#include "policy/policy.hpp"

namespace kvcast::policy {

// sink, recent and budget_convention, so that a sweep over policies can set them. Returns those that `policy` does not
// declare. Each of these accepts only its default, which changes nothing (no tokens, and the policy's own convention).
std::vector<Parameter> common_parameters(const Descriptor& policy);
// The parameters without these. Throws UserError (policy, location, the accepted value) if one has another value.
config::Node own_parameters(const Descriptor& policy, const config::Node& given);

}  // namespace kvcast::policy
