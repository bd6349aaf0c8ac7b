#pragma once

#include <memory>
#include <string>

#include "config/run.hpp"
#include "policy/profile.hpp"

namespace kvcast::study {

// Returns the scores of heads that a policy gets where its settings name no profile: on a synthetic trace those of the
// recipe, by which heads that retrieve have 1 and all others a hundredth; on a captured trace those of the file
// configs/profiles/MODEL.yaml. Null where there is no such file, and where the settings, or those of a policy inside,
// name a profile.
std::shared_ptr<const policy::Profile> default_profile(const config::Run& run, const config::PolicyChoice& policy,
                                                       const config::TraceChoice& trace);

// Returns that of the file; null for a name without one, and where the settings name a profile.
std::shared_ptr<const policy::Profile> profile_of_model(const std::string& model, const config::PolicyChoice& policy);

}  // namespace kvcast::study
