// Parameters that several policies share, with the meaning that they have in all of them.
#pragma once

#include "policy/fields.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

Parameter budget_parameter(std::string meaning, std::int64_t fallback = 2048);
Parameter page_parameter(std::int64_t fallback);
// The names that the policy understands, its default first.
Parameter group_parameter(std::vector<std::string> names);
Parameter window_parameter(std::int64_t fallback);
std::vector<Parameter> pool_parameters(const char* kind, std::int64_t kernel);

}  // namespace kvcast::policy
