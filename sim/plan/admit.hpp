// Changes that make a setting fit in memory, found by simulation.
#pragma once

#include <optional>
#include <string>

#include "plan/experiments.hpp"

namespace kvcast::plan {

// A changed run that fits.
struct Admission {
  std::string change;  // "workload.batch 3"
  ResultPtr result;
};

// Returns the nearest change with which the run fits, or nothing if none of these does: a smaller batch, prompts in
// smaller chunks, a cache and weights with fewer bits, twice the GPUs, and a policy that evicts. Of two that fit the
// one that keeps more of the setting comes first. Changes that leave the fit in doubt come after those that do not.
std::optional<Admission> nearest_that_fits(const config::Node& run, Experiments& experiments);

// "the nearest that fits is workload.batch 3 (peak of 71.2 GB)"; empty without one: "nothing near it fits".
std::string admission_text(const std::optional<Admission>& admission);

}  // namespace kvcast::plan
