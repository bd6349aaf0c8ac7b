// The registry of policies.
#pragma once

#include <string>
#include <vector>

#include "config/run.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

// All policies in the order of presentation.
const std::vector<Descriptor>& all_policies();
// The policy that replays the selections of a file; not among all_policies(), because it is no method.
const Descriptor& replayed_policy();
// Finds either by name. Throws UserError with all names for an unknown name.
const Descriptor& find_policy(const std::string& name);
const Descriptor& find_policy(const config::PolicyChoice& choice);
// Throws UserError with the reason if the policy is not applicable to the model.
void check_model(const Descriptor& descriptor, const config::Model& model, const SourceLocation& asked_at);

}  // namespace kvcast::policy
