// Runs a policy, written as on the command line, over a layer.
#pragma once

#include <string>
#include <vector>

#include "config/yaml.hpp"
#include "policies/all.hpp"
#include "policy/layer_input.hpp"
#include "policy/policy.hpp"

namespace kvcast::tests {

// parameters: YAML inside braces, "budget: 8, page: 2". They are checked for a request of these lengths.
inline std::unique_ptr<policy::Policy> make(const std::string& name, const std::string& parameters,
                                            const policy::Lengths& lengths) {
  auto made = policy::make_policy(policy::find_policy(name), config::parse_yaml("{" + parameters + "}", name));
  made->check(lengths);
  return made;
}

// A policy's selections in one layer: resident after prefill, then every step, with counts completed.
struct Selected {
  policy::LayerSelection resident;
  std::vector<policy::LayerSelection> steps;
};

inline Selected select(policy::Policy& policy, const trace::Layer& layer) {
  const policy::LayerInput input(layer);
  const policy::LayerInput* const all[] = {&input};
  const policy::Lengths lengths{layer.info().prompt_tokens, layer.info().decode_steps};
  if (policy.surveys(lengths)) policy.survey(all, lengths);
  const auto selector = policy.selector(input);
  Selected out;
  selector->prefill(out.resident);
  for (int t = 0; t < layer.info().decode_steps; ++t) {
    policy::LayerSelection& step = out.steps.emplace_back();
    selector->step(t, step);
    for (policy::HeadSelection& head : step.heads) policy::count_lists(head);
  }
  return out;
}

inline Selected select(const std::string& name, const std::string& parameters, const trace::Layer& layer) {
  return select(*make(name, parameters, {layer.info().prompt_tokens, layer.info().decode_steps}), layer);
}

}  // namespace kvcast::tests
