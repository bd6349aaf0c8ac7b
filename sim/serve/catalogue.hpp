// Everything that a configuration may name, as JSON: printed by `kvcast models`, `hardware` and `policies` with --json,
// and offered by the planner's page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config/hardware.hpp"
#include "config/model.hpp"
#include "policy/policy.hpp"

namespace kvcast::serve {

// Keys as in a model's file, then the numbers derived from them.
nlohmann::json to_json(const config::Model& model);
// {name, title, aliases, host, host_title}.
nlohmann::json summary_json(const config::Hardware& machine);
// [{key, value, base, follows, rule}]: numbers that a run sets, and those that follow from them.
nlohmann::json changes_json(const config::Hardware& machine);
// The summary, `changes`, and `numbers`: [{key, value or points, unit, origin, uncertainty, source, range}].
nlohmann::json to_json(const config::Hardware& machine);
nlohmann::json to_json(const policy::Descriptor& policy);

// Every model; unsupported ones with the reason: {name, refused}.
nlohmann::json models_json();

// {models, machines, policies, policy_files, metrics, questions, left_out}, machines with all of their numbers;
// left_out has the errors of files of machines that cannot be read.
nlohmann::json catalogue_json();

}  // namespace kvcast::serve
