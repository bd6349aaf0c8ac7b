// Parts of records that several of them have.
#pragma once

#include <nlohmann/json.hpp>

#include "metrics/attribution.hpp"

namespace kvcast::workload {

// [{"kind", "exposed_s", "hidden_s", "uncertain_s"}], kinds without time left out. uncertain_s: what the exposed
// seconds may be off, all costs of the kind in the same direction.
nlohmann::json breakdown_json(const metrics::Attribution& time);
// The worst origin that carries at least a twentieth of the time: a sliver of an assumed cost does not name the whole.
Origin resting_on(const metrics::Attribution& time);

}  // namespace kvcast::workload
