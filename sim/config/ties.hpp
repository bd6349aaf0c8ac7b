// Numbers of a machine that are tied to others and move with them when a run changes one of these.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/hardware.hpp"

namespace kvcast::config {

// Moves the numbers tied to those in which `machine` (whose knobs are `now`) differs from `base`, except the keys in
// `set`, which the run sets itself. Returns the changes, from base to the new value, in the order of the table of ties.
//
// A number that moved is extrapolated: its ratio to the number that it follows was established on the base, and each
// doubling adds 5 % to its uncertainty.
std::vector<MachineChange> move_tied(const Hardware& machine, const std::vector<Knob>& now, const Hardware& base,
                                     const std::set<std::string>& set);

// A quantity with up to so many digits, in the unit that three would have: "4.855 TB/s".
std::string exact_text(double value, Dimension dimension, int digits = 6);

}  // namespace kvcast::config
