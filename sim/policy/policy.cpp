#include "policy/policy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "policy/common_parameters.hpp"
#include "policy/costs.hpp"

namespace kvcast::policy {
ParameterValues::ParameterValues(const Descriptor& policy, const config::Node& given)
    : ParameterValues(policy.parameters, own_parameters(policy, given), policy.name) {}

const char* name(BudgetRule::Counts counts) {
  constexpr const char* kNames[] = {"attended", "retained", "selected", "traffic"};
  return kNames[static_cast<std::size_t>(counts)];
}

std::optional<BudgetRule> budget_rule(const Descriptor& descriptor, const ParameterValues& values,
                                      const Lengths& lengths) {
  if (!values.all().contains("budget") || values.is_text("budget")) return std::nullopt;
  if (descriptor.budget_rule) return descriptor.budget_rule(values, lengths);
  return BudgetRule{.tokens = values.integer("budget")};
}

double DecodeLayer::sum(std::int64_t HeadCounts::*field) const {
  double total = 0;
  for (const HeadCounts& head : heads) total += static_cast<double>(head.*field);
  return total;
}

double DecodeLayer::largest(std::int64_t HeadCounts::*field) const {
  std::int64_t most = 0;
  for (const HeadCounts& head : heads) most = std::max(most, head.*field);
  return static_cast<double>(most);
}

double PromptBlocks::held_at(std::int64_t end) const {
  if (tokens == 0) return static_cast<double>(end);
  const std::int64_t whole = end / tokens * tokens;  // tokens of complete blocks
  const std::int64_t kept = whole < from ? whole : std::min(whole, held);
  return static_cast<double>(end - whole) + whole_share * static_cast<double>(whole) +
         (1 - whole_share) * static_cast<double>(kept);
}

void Policy::survey(std::span<const LayerInput* const>) {}

void Policy::prefill_layer(const PrefillLayer&, LayerOps&) const {}

OpId Policy::prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const {
  return ops.compute(Kind::kAttention, "prefill attention", causal_attention(chunk), {ops.ready()});
}

std::unique_ptr<Policy> make_policy(const Descriptor& descriptor, const config::Node& parameters,
                                    const Lengths& lengths, std::shared_ptr<const Profile> profile) {
  KVCAST_CHECK(lengths.prompt_tokens >= 1 && lengths.decode_steps >= 0);
  ParameterValues values(descriptor, parameters);
  values.set_profile(std::move(profile));
  return descriptor.make(values, lengths);
}

}  // namespace kvcast::policy
