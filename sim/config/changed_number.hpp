// A number of a machine as a run states it: a quantity, a factor, or a map with its origin.
#pragma once

#include <optional>

#include "config/hardware.hpp"

namespace kvcast::config {

// Sets the number to what the node says and returns the change; nothing if the value is unchanged. A number without an
// uncertainty of its own gets `uncertainty` if given, otherwise that of the previous number. Throws UserError at the
// node, naming the key, the range and the expected form.
std::optional<MachineChange> change_number(const Knob& knob, const Node& node, std::optional<double> uncertainty);

}  // namespace kvcast::config
