// A budget that is a share of all tokens seen so far (CTkvr's 4 %; kvpress, CompressionRatioDecodingPress).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "policy/policy.hpp"

namespace kvcast::policy {

// The budget after `tokens` tokens of a sequence if `budget` is meant for the end of a prompt of `prompt` tokens: the
// same share, rounded, at least 1.
std::int64_t grown_budget(std::int64_t budget, std::int64_t prompt, std::int64_t tokens);

// Serves each step by at(its budget). The policies keep all tokens, so that a step depends on earlier ones only by what
// a policy updates while decoding; that is done again under each new budget. They choose by one layer alone (no
// Policy::survey).
// on_cpu: the budget is of tokens that a CPU reads.
std::unique_ptr<Policy> growing_budget(std::int64_t budget, bool on_cpu,
                                       std::function<std::unique_ptr<Policy>(std::int64_t)> at);

}  // namespace kvcast::policy
