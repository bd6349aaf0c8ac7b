// One number of a machine as a run writes it: a quantity, a factor, or a map with its origin.
#pragma once

#include <optional>

#include "config/hardware.hpp"

namespace kvcast::config {

// Puts what the node says into the number and returns what that changes; nothing where it says what stands there. Of a
// number without an uncertainty of its own: `uncertainty` where there is one, else that of the number before. UserError
// at the node, naming the key, the range and what is expected.
std::optional<MachineChange> change_number(const Knob& knob, const Node& node, std::optional<double> uncertainty);

}  // namespace kvcast::config
