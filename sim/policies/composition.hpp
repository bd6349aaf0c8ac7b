// Policies nested in policies, as in `then: {name: ctkvr, budget: 512}` or `first_stage: adakv`. A nested policy is a
// name, a file under configs/policies, or a map of one of them and parameters.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "policy_parts/stages.hpp"

namespace kvcast::policy {

// Declares a parameter whose value is a policy. names: values that it accepts in addition to policies.
Parameter policy_parameter(std::string key, std::string fallback, std::string meaning,
                           std::vector<std::string> names = {});

// Makes the policy that is the value of `key`.
std::unique_ptr<Policy> read_policy(const ParameterValues& values, const std::string& key);

// Makes the same as two stages. Throws UserError if the policy has no stages or sets `first_dense_layers`, which
// belongs to the outer policy. budget: granted by the outer policy, under the traffic convention if `traffic` and if
// the policy has that convention. Throws UserError if the policy has no budget, or sets one itself.
Stages read_stages(const ParameterValues& values, const std::string& key, std::optional<std::int64_t> budget = {},
                   bool traffic = false);

}  // namespace kvcast::policy
