#include "policy/shared_parameters.hpp"

namespace kvcast::policy {

Parameter budget_parameter(std::string meaning, std::int64_t fallback) {
  return whole("budget", fallback, "tokens", std::move(meaning), 1);
}

Parameter page_parameter(std::int64_t fallback) {
  return whole("page", fallback, "tokens", "tokens in a page", 1, 65536);
}

Parameter group_parameter(std::vector<std::string> names) {
  return choice("group", std::move(names), "how the query heads of a KV head agree on one selection");
}

Parameter window_parameter(std::int64_t fallback) {
  return whole("window", fallback, "queries",
               "last prompt queries that score the prompt; their tokens are kept, inside the budget", 1, 65536);
}

std::vector<Parameter> pool_parameters(const char* kind, std::int64_t kernel) {
  Parameter pool = choice("pool", {"max", "avg"}, "pooling of the window's scores along the positions");
  pool.fallback = std::string(kind);
  return {std::move(pool), whole("pool_kernel", kernel, "tokens", "width of the pooling, odd", 1, 65535)};
}

}  // namespace kvcast::policy
