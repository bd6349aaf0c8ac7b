#include "policy/shared_parameters.hpp"

#include "base/error.hpp"

namespace kvcast::policy {

Parameter budget_parameter(std::string meaning, std::int64_t fallback) {
  return whole("budget", fallback, "tokens", std::move(meaning), 1);
}

std::vector<Parameter> common_parameters(const Descriptor& policy) {
  // The first word of what the budget counts.
  const std::string counts = policy.budget_convention.substr(0, policy.budget_convention.find_first_of(":, "));
  std::vector<Parameter> all = {
      whole("sink", 0, "tokens", "first tokens that always stay or are always read", 0, 0),
      whole("recent", 0, "tokens", "last tokens that always stay or are always read", 0, 0),
      choice("budget_convention", {counts.empty() ? "attended" : counts}, "what the budget counts")};
  std::erase_if(all, [&](const Parameter& p) {
    return std::any_of(policy.parameters.begin(), policy.parameters.end(),
                       [&](const Parameter& own) { return own.key == p.key; });
  });
  return all;
}

config::Node own_parameters(const Descriptor& policy, const config::Node& given) {
  if (given.kind() != config::Node::Kind::kMap) return given;
  const std::vector<Parameter> all = common_parameters(policy);
  std::vector<std::string_view> common;
  for (const Parameter& p : all) {
    const config::Node* const node = given.find(p.key);
    if (node == nullptr) continue;
    const std::string only = p.names.empty() ? "0" : p.names.front();
    if (node->kind() != config::Node::Kind::kScalar || node->text() != only) {
      throw UserError(node->where(), fmt::format("{} knows no {} but {} ({})", policy.name, p.key, only, p.meaning),
                      {only});
    }
    common.push_back(p.key);
  }
  return given.without(common);
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
                  "the prompt is read in blocks of so many tokens, with an eviction after each", 1, 1e9);
}

Parameter read_always_parameter(const std::string& key) {
  return whole(key, 0, "tokens",
               key == "sink" ? "first tokens always read, inside the budget"
                             : "last tokens always read, the current one included, inside the budget");
}

Parameter sink_parameter() {
  return whole("sink", 0, "tokens", "first tokens that are never evicted, inside the budget");
}

Parameter recent_parameter() {
  return whole("recent", 0, "tokens",
               "last tokens that are never evicted, the current one included, inside the budget");
}

}  // namespace kvcast::policy
