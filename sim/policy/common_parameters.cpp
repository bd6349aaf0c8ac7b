#include "policy/common_parameters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "policy/fields.hpp"

namespace kvcast::policy {

std::vector<Parameter> common_parameters(const Descriptor& policy) {
  std::vector<Parameter> all = {
      whole("sink", 0, "tokens", "first tokens that are always kept or always read", 0, 0),
      whole("recent", 0, "tokens", "last tokens that are always kept or always read", 0, 0),
      choice("budget_convention", {name(policy.budget_counts())}, "quantity that the budget counts")};
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
      const bool has_reason = !policy.no_ends.empty() && p.names.empty();
      throw UserError(node->where(),
                      fmt::format("{} accepts no {} but {} ({})", policy.name, p.key, only,
                                  has_reason ? policy.no_ends : std::string_view(p.meaning)),
                      {only});
    }
    common.push_back(p.key);
  }
  return given.without(common);
}

}  // namespace kvcast::policy
