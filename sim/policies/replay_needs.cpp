#include "policies/replay_needs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "config/find.hpp"
#include "config/run.hpp"
#include "policies/all.hpp"
#include "policy/common_parameters.hpp"
#include "policy/profile.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

bool takes_policy(const Parameter& p) { return p.accepts("<policy>"); }

// A word that the parameter itself defines ("auto", "none") names neither a policy nor a file.
bool names_another(const Parameter& p, const config::Node& node) {
  if (node.kind() != config::Node::Kind::kScalar) return true;
  return !node.text().empty() && (node.text() == "<policy>" || !p.accepts(node.text()));
}

// The name or the file by which a nested policy is given, which read_policy has accepted.
const config::Node& name_of(const config::Node& policy) {
  if (policy.kind() != config::Node::Kind::kMap) return policy;
  const config::Node* const name = policy.find("name");
  return name != nullptr ? *name : *policy.find("file");
}

void add_files(NamedFiles& files, const Descriptor& descriptor, const config::Node& parameters) {
  for (const Parameter& p : descriptor.parameters) {
    const config::Node* const node = parameters.find(p.key);
    if (node == nullptr || !names_another(p, *node)) continue;
    if (takes_policy(p)) {
      const config::PolicyChoice inner = config::read_policy(*node);
      if (auto path = config::find_config_if_any("policies", name_of(*node).text(), node->where())) {
        files.paths.push_back(*std::move(path));
      }
      add_files(files, find_policy(inner), inner.parameters);
    } else if (p.key == kProfileKey) {
      if (node->kind() != config::Node::Kind::kScalar) {
        throw UserError(node->where(),
                        fmt::format("{}: expected a name or a path, found {}", p.key, config::describe(*node)));
      }
      files.paths.push_back(config::find_config("profiles", node->text(), node->where()));
      files.profile = true;
    } else if (p.accepts("<path>")) {
      files.paths.push_back(node->text());
    }
  }
}

void add(ReplayNeeds& needs, const ReplayNeeds& more) {
  needs.coupled = needs.coupled || more.coupled;
  needs.whole_prompt = needs.whole_prompt || more.whole_prompt;
  needs.in_blocks = needs.in_blocks || more.in_blocks;
  needs.each_turn = needs.each_turn || more.each_turn;
  needs.window = std::max(needs.window, more.window);
  needs.rounds = needs.rounds || more.rounds;
  if (needs.unseen.empty()) needs.unseen = more.unseen;
}

}  // namespace

NamedFiles named_files(const Descriptor& descriptor, const config::Node& parameters) {
  NamedFiles files;
  add_files(files, descriptor, parameters);
  return files;
}

ReplayNeeds replay_needs(const Descriptor& descriptor, const config::Node& parameters, const Lengths& lengths) {
  const ParameterValues values(descriptor, parameters);
  ReplayNeeds needs;
  if (descriptor.needs) needs = descriptor.needs(values, lengths);
  for (const Parameter& p : descriptor.parameters) {
    // An index has blocks too, of which none is the whole prompt.
    if (p.key == "block" && p.accepts("prompt")) needs.in_blocks = !values.is_text("block");
    if (!takes_policy(p)) continue;
    const config::Node node = values.node(p.key);
    if (!names_another(p, node)) continue;
    const config::PolicyChoice inner = config::read_policy(node);
    add(needs, replay_needs(find_policy(inner), inner.parameters, lengths));
  }
  return needs;
}

config::Node for_compressed_layers(const Descriptor& descriptor, const config::Node& parameters) {
  config::Node out = own_parameters(descriptor, parameters).without(descriptor.uncompressed_layers);
  for (const Parameter& p : descriptor.parameters) {
    const config::Node* const node = takes_policy(p) ? out.find(p.key) : nullptr;
    if (node == nullptr || !names_another(p, *node)) continue;
    const config::PolicyChoice inner = config::read_policy(*node);
    const config::Node resolved = for_compressed_layers(find_policy(inner), inner.parameters);
    out = out.with(p.key, resolved.with("name", config::Node::scalar(inner.name, inner.where)));
  }
  return out;
}

}  // namespace kvcast::policy
