// Requirements that a policy places on sample traces.
//
// A sample trace has one or two layers, which represent compressed layers, and fewer heads than a layer of the model.
// The sample that a policy needs follows from its parameters, including those of nested policies.
#pragma once

#include <string>
#include <vector>

#include "policy/policy.hpp"

namespace kvcast::policy {

// Throws UserError, like make_policy, for parameters that the policy does not accept.
ReplayNeeds replay_needs(const Descriptor& descriptor, const config::Node& parameters, const Lengths& lengths);

// Files that the parameters of a policy and of the policies nested in it name.
struct NamedFiles {
  std::vector<std::string> paths;  // descriptions of nested policies, profiles, bases, recorded selections
  bool profile = false;            // one of them is a profile
};

// Throws UserError for a profile or a nested policy that does not exist.
NamedFiles named_files(const Descriptor& descriptor, const config::Node& parameters);

// Returns the parameters without those that leave layers of the model uncompressed and those that do not apply to the
// policy. Nested policies are resolved to maps of the same kind, so that equal texts are equal policies, whichever
// files they were read from.
config::Node for_compressed_layers(const Descriptor& descriptor, const config::Node& parameters);

}  // namespace kvcast::policy
