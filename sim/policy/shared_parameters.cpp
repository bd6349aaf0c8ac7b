#include "policy/descriptors.hpp"
#include "policy/group.hpp"

namespace kvcast::policy {

Parameter budget_parameter(std::string meaning, std::int64_t fallback) {
  return {
      .key = "budget", .fallback = fallback, .unit = "tokens", .meaning = std::move(meaning), .low = 1, .high = 1e9};
}

Parameter page_parameter(std::int64_t fallback) {
  return {
      .key = "page", .fallback = fallback, .unit = "tokens", .meaning = "tokens in a page", .low = 1, .high = 65536};
}

Parameter group_parameter(std::vector<std::string> names) {
  return {.key = "group",
          .fallback = names.front(),
          .unit = "",
          .meaning = "how the query heads of a KV head agree on one selection",
          .names = std::move(names)};
}

Parameter window_parameter(std::int64_t fallback) {
  return {.key = "window",
          .fallback = fallback,
          .unit = "queries",
          .meaning = "last prompt queries that score the prompt; their tokens are kept, inside the budget",
          .low = 1,
          .high = 65536};
}

std::vector<Parameter> pool_parameters(const char* kind, std::int64_t kernel) {
  return {{.key = "pool",
           .fallback = std::string(kind),
           .unit = "",
           .meaning = "pooling of the window's scores along the positions",
           .names = {"max", "avg"}},
          {.key = "pool_kernel",
           .fallback = kernel,
           .unit = "tokens",
           .meaning = "width of the pooling, odd",
           .low = 1,
           .high = 65535}};
}

}  // namespace kvcast::policy
