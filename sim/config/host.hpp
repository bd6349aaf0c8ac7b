// The host of a machine, read separately.
#pragma once

#include <string>

#include "config/hardware.hpp"

namespace kvcast::config {

// Reads a file like those of configs/hosts, at this path. Throws UserError as read_hardware does.
Host read_host(const std::string& path);

}  // namespace kvcast::config
