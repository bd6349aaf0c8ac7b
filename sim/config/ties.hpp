// Numbers of a machine that are tied to others, and move along where a run changes one of these.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/hardware.hpp"

namespace kvcast::config {

// Moves what is tied to the numbers by which `machine` (whose knobs are `now`) differs from `base`, but for the keys in
// `set`: those are the run's own. Returns what moved, from base to its new value, in the order of the table of ties.
//
// A number that moved is extrapolated: its ratio to the number that it follows was established on the base, and each
// doubling adds 5 % to its uncertainty.
std::vector<MachineChange> move_tied(const Hardware& machine, const std::vector<Knob>& now, const Hardware& base,
                                     const std::set<std::string>& set);

// A quantity with up to six digits: "4.855 TB/s".
std::string exact_text(double value, Dimension dimension);

}  // namespace kvcast::config
