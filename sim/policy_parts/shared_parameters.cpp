#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {

Parameter budget_parameter(std::string meaning, std::int64_t fallback) {
  return whole("budget", fallback, "tokens", std::move(meaning), 1);
}

Parameter growing_parameter() {
  return flag("budget_grows", false,
              "the budget is that of the prompt's end and keeps its share of all tokens seen, so that `budget: 4 %` is "
              "4 % at every step");
}

Parameter page_parameter(std::int64_t fallback) {
  return whole("page", fallback, "tokens", "tokens per page", 1, 65536);
}

void check_page(const SourceLocation& where, std::int64_t budget, std::int64_t page) {
  if (budget >= page) return;
  throw UserError(where, fmt::format("budget ({} tokens) is smaller than one page ({} tokens)", budget, page));
}

Parameter summary_format_parameter() {
  return choice("summary_format", summary_formats(),
                "numbers of the page summaries: those of the KV cache, or 8-bit ones without a scale");
}

Parameter group_parameter(std::vector<std::string> names) {
  return choice("group", std::move(names), "rule by which the query heads of a KV head agree on one selection");
}

Parameter window_parameter(std::int64_t fallback) {
  return whole("window", fallback, "queries",
               "last prompt queries, which score the prompt; their tokens are kept, within the budget", 1, 65536);
}

Parameter pool_parameter(const char* kind) {
  Parameter pool = choice("pool", {"max", "avg"}, "pooling of the window's scores along the positions");
  pool.fallback = std::string(kind);
  return pool;
}

Parameter pool_kernel_parameter(std::int64_t kernel) {
  return whole("pool_kernel", kernel, "tokens", "width of the pooling, odd", 1, 65535);
}

Parameter block_parameter() {
  return whole_or("block", "prompt", "tokens",
                  "tokens of a prompt block, each followed by an eviction; prompt: the whole prompt at once", 1, 1e9);
}

Parameter read_always_parameter(const std::string& key) {
  return whole(key, 0, "tokens",
               key == "sink" ? "first tokens always read, within the budget"
                             : "last tokens always read, including the current one, within the budget");
}

SourceLocation where_fixed(const ParameterValues& values) {
  return values.where(values.given("sink") ? "sink" : "recent");
}

void check_pages_read(const SourceLocation& where, std::int64_t sink, std::int64_t recent, std::int64_t page,
                      std::int64_t read, bool at_end) {
  // A window covers one more page than it fills unless it ends at a page boundary.
  const std::int64_t window = at_end ? (recent + page - 1) / page : recent > 0 ? (recent + page - 2) / page + 1 : 0;
  const std::int64_t fixed = (sink + page - 1) / page + window;
  if (fixed <= read) return;
  throw UserError(where, fmt::format("sink ({}) and recent ({}) tokens are in up to {} pages of {}, but {} are read",
                                     sink, recent, fixed, page, read));
}

Parameter sink_parameter() {
  return whole("sink", 0, "tokens", "first tokens that are never evicted, within the budget");
}

Parameter recent_parameter() {
  return whole("recent", 0, "tokens",
               "last tokens that are never evicted, including the current one, within the budget");
}

}  // namespace kvcast::policy
