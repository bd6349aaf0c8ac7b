#include "policy/policy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "policy/common_parameters.hpp"
#include "policy/costs.hpp"

namespace kvcast::policy {

std::vector<MemoryItem> storage(const Policy& policy, const MemoryShape& shape) {
  std::vector<MemoryItem> all;
  for (const config::Model& part : config::by_cache(*shape.model)) {
    MemoryShape of_part = shape;
    of_part.model = &part;
    const bool first = all.empty();
    for (const MemoryItem& item : policy.memory(of_part)) {
      if (first || !item.shared) all.push_back(item);
    }
  }
  return all;
}
ParameterValues::ParameterValues(const Descriptor& policy, const config::Node& given)
    : ParameterValues(policy.parameters, own_parameters(policy, given), policy.name) {}

const char* name(BudgetRule::Counts counts) {
  constexpr const char* kNames[] = {"attended", "retained", "selected", "traffic"};
  return kNames[static_cast<std::size_t>(counts)];
}

ReuseClass Descriptor::reuse() const {
  using enum config::SchedulerRules::Reuse;
  if (own_reuse) return *own_reuse;
  switch (category) {
    case Category::kDrop:
    case Category::kDropAndRetrieval:
      return {kChain, "what is kept depends on all of the prompt, and serves a prompt that continues the sequence"};
    case Category::kHostRetrieval:
    case Category::kCpuRetrieval:
      return {kRadix, "all keys and values stay in host memory; what selects from them is built again"};
    case Category::kRecorded:
      return {kNone, "not known of recorded selections"};
    case Category::kNone:
    case Category::kGpuRetrieval:
    case Category::kOracle:
    case Category::kQuantisation:
    case Category::kSparsePrefill:
      break;
  }
  return {kRadix, "all keys and values stay"};
}

bool Descriptor::selects() const {
  switch (category) {
    case Category::kNone:
    case Category::kDrop:
    case Category::kQuantisation:
    case Category::kSparsePrefill:
      return false;
    case Category::kDropAndRetrieval:
    case Category::kGpuRetrieval:
    case Category::kHostRetrieval:
    case Category::kCpuRetrieval:
    case Category::kOracle:
    case Category::kRecorded:
      break;
  }
  return true;
}

BudgetRule::Counts Descriptor::budget_counts() const {
  if (own_budget_counts) return *own_budget_counts;
  return category == Category::kDrop           ? BudgetRule::Counts::kRetained
         : category == Category::kCpuRetrieval ? BudgetRule::Counts::kSelected
                                               : BudgetRule::Counts::kAttended;
}

std::string Descriptor::budget_text() const {
  return budget_convention.empty() ? "" : fmt::format("{}: {}", policy::name(budget_counts()), budget_convention);
}

std::optional<BudgetRule> budget_rule(const Descriptor& descriptor, const ParameterValues& values,
                                      const Lengths& request) {
  if (!values.all().contains("budget") || values.is_text("budget")) return std::nullopt;
  if (descriptor.budget_rule) return descriptor.budget_rule(values, request);
  return BudgetRule{.tokens = values.integer("budget")};
}

double DecodeLayer::sum(std::span<const HeadCounts> heads, std::int64_t HeadCounts::*field) {
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
  if (tokens == 0) return read * static_cast<double>(end);
  const std::int64_t whole = end / tokens * tokens;  // tokens of complete blocks
  const std::int64_t kept = whole < from ? whole : std::min(whole, held);
  return static_cast<double>(end - whole) + whole_share * static_cast<double>(whole) +
         (1 - whole_share) * static_cast<double>(kept);
}

void Policy::survey(std::span<const LayerInput* const>, const Lengths&) {}

void Policy::check(const Lengths&) const {}

std::unique_ptr<Selector> Policy::selector(const LayerInput& layer) const {
  return selector(layer, {layer.info().prompt_tokens, layer.info().decode_steps});
}

void Policy::prefill_layer(const PrefillLayer&, LayerOps&) const {}

OpId Policy::prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const {
  return ops.compute(Kind::kAttention, "prefill attention", causal_attention(chunk), {ops.ready()});
}

std::unique_ptr<Policy> make_policy(const Descriptor& descriptor, const config::Node& parameters,
                                    std::shared_ptr<const Profile> profile) {
  ParameterValues values(descriptor, parameters);
  values.set_profile(std::move(profile));
  std::unique_ptr<Policy> made = descriptor.make(values);
  made->uncompressed_ = descriptor.uncompressed(), made->selects_ = descriptor.selects();
  return made;
}

}  // namespace kvcast::policy
