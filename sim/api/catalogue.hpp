// Everything that a configuration may name, as JSON: printed by `kvcast models`, `hardware` and `policies` with --json,
// and offered by the planner's page.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "config/hardware.hpp"
#include "config/model.hpp"
#include "policy/policy.hpp"

namespace kvcast::api {

// Keys as in a model's file, then the numbers derived from them.
nlohmann::json to_json(const config::Model& model);
// {name, title, aliases, host, host_title}.
nlohmann::json summary_json(const config::Hardware& machine);
// [{key, value, base, follows, rule}]: numbers that a run sets, and those that follow from them.
nlohmann::json changes_json(const config::Hardware& machine);
// The summary, `changes`, and `numbers`: [{key, value or points, unit, origin, uncertainty, source, range}].
nlohmann::json to_json(const config::Hardware& machine);
nlohmann::json to_json(const policy::Descriptor& policy);

// The message of an error in a file: the whole one, or what a client may read of it (client_text.hpp).
using ErrorText = std::function<std::string(const UserError&)>;
std::string whole_text(const UserError& error);

// Every model, or every one that a request may name if `asked_at` is in one; those that cannot be used with the reason:
// {name, refused}.
nlohmann::json models_json(const SourceLocation& asked_at = {}, const ErrorText& text = whole_text);

// {models, machines, policies, policy_settings, frameworks, metrics, questions, left_out}, machines with all of their
// numbers; policy_settings: [{name, policy, set, description}], of the files under configs/policies; frameworks:
// [{name, title}]; left_out has the errors of files that cannot be read.
nlohmann::json catalogue_json(const SourceLocation& asked_at = {}, const ErrorText& text = whole_text);

}  // namespace kvcast::api
