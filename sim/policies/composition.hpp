// Policies inside policies, as configurations write them: `then: {name: ctkvr, budget: 512}`, `first_stage: adakv`.
// What stands there is a name, a file under configs/policies, or a map of one of them and parameters.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "policy_parts/stages.hpp"

namespace kvcast::policy {

// The parameter that takes it. names: what it takes beside a policy.
Parameter policy_parameter(std::string key, std::string fallback, std::string meaning,
                           std::vector<std::string> names = {});

// The policy that stands under `key`.
std::unique_ptr<Policy> read_policy(const ParameterValues& values, const std::string& key, const Lengths& lengths);

// The same as two stages. UserError where it is none, or sets `first_dense_layers`, which belongs to the whole. budget:
// what the frame around it grants, under the traffic convention where `traffic` and where the policy has it; UserError
// where the policy has no budget, or is given one of its own.
Stages read_stages(const ParameterValues& values, const std::string& key, const Lengths& lengths,
                   std::optional<std::int64_t> budget = {}, bool traffic = false);

}  // namespace kvcast::policy
