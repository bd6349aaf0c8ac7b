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
// Pooling of scores along the positions: by `kind` ("max" or "avg"), and over how many.
Parameter pool_parameter(const char* kind);
Parameter pool_kernel_parameter(std::int64_t kernel);
// The prompt is read in blocks of so many tokens, or whole.
Parameter block_parameter();
// Of a retrieval policy, `sink` or `recent`: tokens that every step reads, inside the budget.
Parameter read_always_parameter(const std::string& key);
// Tokens that are never evicted, inside the budget.
Parameter sink_parameter();
Parameter recent_parameter();

}  // namespace kvcast::policy
