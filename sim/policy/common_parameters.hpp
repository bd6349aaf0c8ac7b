// Parameters that every policy takes.
#pragma once

#include "policy/policy.hpp"

namespace kvcast::policy {

// sink, recent and budget_convention, so that a sweep over policies can set them. Returns those that `policy` does not
// declare, for they mean nothing to it: each takes its default alone, which changes nothing (no token, and the
// convention that the policy has).
std::vector<Parameter> common_parameters(const Descriptor& policy);
// The parameters without these. UserError (policy, place, the one value) where one has another value.
config::Node own_parameters(const Descriptor& policy, const config::Node& given);

}  // namespace kvcast::policy
