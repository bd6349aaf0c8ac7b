// Published lengths of answers under policies that evict (configs/accuracy/answer_lengths.yaml).
#pragma once

#include "config/run.hpp"

namespace kvcast::config {

// Returns the factor on output lengths under the policy with its budget: 1 for the uncompressed cache. Throws UserError
// at `asked_at` for a policy without published lengths, without a written budget, or with a budget beyond them.
double published_length_factor(const PolicyChoice& policy, const SourceLocation& asked_at);

}  // namespace kvcast::config
