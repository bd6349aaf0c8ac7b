// Work of attention over unequal lengths, of passes with a chunk of a prompt, and of sparse latent attention, as
// kvcast-kernels and kernels/attention_library.py measure them.
#pragma once

#include <optional>

#include "config/hardware.hpp"
#include "validate/policy_works.hpp"

namespace kvcast::validate {

// Empty for rows of other kernels, and for gathers and selections of sizes that fits read. Throws UserError if the row
// lacks what its work needs.
std::optional<PolicyWork> attention_work(const calibrate::Row& row);

// Returns whether a library's kernel is FlashAttention-2's.
bool is_flash_2(const calibrate::Row& row);
// The machine with kernels of FlashAttention-2: its share of the peak, and one kernel of unequal lengths that reads
// keys and values again for the heads of a group, as on GPUs that run no later version.
config::Hardware with_flash_2(config::Hardware machine);

// The row that measures one part (chunk, decodes) of this row's pass by itself, or null.
const calibrate::Row* part_of_pass(const calibrate::Results& results, const calibrate::Row& pass, const char* part);

}  // namespace kvcast::validate
