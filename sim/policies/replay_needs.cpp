#include "policies/replay_needs.hpp"

#include <algorithm>
#include <functional>

#include "config/run.hpp"
#include "policies/all.hpp"
#include "policy/common_parameters.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

bool takes_policy(const Parameter& p) { return std::find(p.names.begin(), p.names.end(), "<policy>") != p.names.end(); }

// A name that the parameter itself defines ("auto") is not a policy.
bool names_policy(const Parameter& p, const config::Node& node) {
  if (node.kind() != config::Node::Kind::kScalar) return true;
  const bool own = node.text() != "<policy>" && std::find(p.names.begin(), p.names.end(), node.text()) != p.names.end();
  return !own && !node.text().empty();
}

void add(ReplayNeeds& needs, const ReplayNeeds& more) {
  needs.coupled = needs.coupled || more.coupled;
  needs.whole_prompt = needs.whole_prompt || more.whole_prompt;
  needs.in_blocks = needs.in_blocks || more.in_blocks;
  needs.each_turn = needs.each_turn || more.each_turn;
  needs.window = std::max(needs.window, more.window);
  if (needs.unseen.empty()) needs.unseen = more.unseen;
}

}  // namespace

ReplayNeeds replay_needs(const Descriptor& descriptor, const config::Node& parameters, const Lengths& lengths) {
  const ParameterValues values(descriptor, parameters);
  ReplayNeeds needs;
  if (descriptor.needs) needs = descriptor.needs(values, lengths);
  if (values.all().contains("block")) needs.in_blocks = !values.is_text("block");
  for (const Parameter& p : descriptor.parameters) {
    if (!takes_policy(p)) continue;
    const config::Node node = values.node(p.key);
    if (!names_policy(p, node)) continue;
    const config::PolicyChoice inner = config::read_policy(node);
    add(needs, replay_needs(find_policy(inner.name, inner.where), inner.parameters, lengths));
  }
  return needs;
}

config::Node for_compressed_layers(const Descriptor& descriptor, const config::Node& parameters) {
  config::Node out = own_parameters(descriptor, parameters).without(descriptor.uncompressed_layers);
  for (const Parameter& p : descriptor.parameters) {
    const config::Node* const node = takes_policy(p) ? out.find(p.key) : nullptr;
    if (node == nullptr || !names_policy(p, *node)) continue;
    const config::PolicyChoice inner = config::read_policy(*node);
    const config::Node resolved = for_compressed_layers(find_policy(inner.name, inner.where), inner.parameters);
    out = out.with(p.key, resolved.with("name", config::Node::scalar(inner.name, inner.where)));
  }
  return out;
}

}  // namespace kvcast::policy
