// Requirements of a policy on sample traces.
//
// A sample trace has one or two layers, all of which stand for compressed ones, and fewer heads than a layer of the
// model. Which sample a policy needs follows from its parameters, those of policies inside it included.
#pragma once

#include "policy/policy.hpp"

namespace kvcast::policy {

// UserError as make_policy for parameters that the policy does not take.
ReplayNeeds replay_needs(const Descriptor& descriptor, const config::Node& parameters, const Lengths& lengths);

// Returns the parameters without those that leave layers of the model uncompressed and those that mean nothing to the
// policy, and policies inside them resolved to maps of the same kind: equal texts are equal policies, whatever files
// they were read from.
config::Node for_compressed_layers(const Descriptor& descriptor, const config::Node& parameters);

}  // namespace kvcast::policy
