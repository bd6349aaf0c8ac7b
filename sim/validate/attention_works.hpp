// Work of attention over unequal lengths, of passes with a chunk of a prompt, and of sparse latent attention, as
// kvcast-kernels and kernels/attention_library.py measure them.
#pragma once

#include <optional>

#include "hardware/cost_model.hpp"
#include "validate/policy_works.hpp"

namespace kvcast::validate {

// Empty for rows of other kernels, and for gathers and selections of sizes that fits read. Throws UserError if the row
// lacks what its work needs.
std::optional<PolicyWork> attention_work(const calibrate::MeasuredRow& row);

// Returns whether a library's kernel is FlashAttention-2's.
bool is_flash_2(const calibrate::MeasuredRow& row);
// The machine under a framework whose attention is FlashAttention-2's, with kernels launched one by one in a stream.
hardware::CostModel flash_2_model(const config::Hardware& machine);

// The row that measures one part (chunk, decodes) of this row's pass by itself, or null.
const calibrate::MeasuredRow* part_of_pass(const calibrate::Results& results, const calibrate::MeasuredRow& pass,
                                           const char* part);

}  // namespace kvcast::validate
