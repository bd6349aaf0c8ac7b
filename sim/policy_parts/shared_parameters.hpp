// Parameters that several policies share, with the same meaning in each.
#pragma once

#include "policy/fields.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

Parameter budget_parameter(std::string meaning, std::int64_t fallback = 2048);
// The budget is that of the prompt's end and keeps its share of all tokens seen.
Parameter growing_parameter();
Parameter page_parameter(std::int64_t fallback);
// Throws UserError if the budget, which is written at `where`, is smaller than one page.
void check_page(const SourceLocation& where, std::int64_t budget, std::int64_t page);
Parameter summary_format_parameter();  // names in the order of SummaryFormat
// Accepts the names that the policy supports, its default first.
Parameter group_parameter(std::vector<std::string> names);
Parameter window_parameter(std::int64_t fallback);
// Pooling of scores along the positions: its kind ("max" or "avg") and its width.
Parameter pool_parameter(const char* kind);
Parameter pool_kernel_parameter(std::int64_t kernel);
// The prompt is read in blocks of this many tokens, or at once.
Parameter block_parameter();
// `sink` or `recent` of a retrieval policy: tokens that every step reads, within the budget.
Parameter read_always_parameter(const std::string& key);
// Returns the location of `sink` or, if that is not written, of `recent`.
SourceLocation where_fixed(const ParameterValues& values);
// Throws UserError at `where` if the first `sink` and the last `recent` tokens may span more than `read` pages. at_end:
// the last of these pages is full.
void check_pages_read(const SourceLocation& where, std::int64_t sink, std::int64_t recent, std::int64_t page,
                      std::int64_t read, bool at_end = false);
// `sink` and `recent` tokens that are never evicted, within the budget.
Parameter sink_parameter();
Parameter recent_parameter();

}  // namespace kvcast::policy
