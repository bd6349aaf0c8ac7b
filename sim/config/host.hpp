// The host of a machine by itself.
#pragma once

#include <string>

#include "config/hardware.hpp"

namespace kvcast::config {

// A file like those of configs/hosts, at this path. UserError as read_hardware.
Host read_host(const std::string& path);

}  // namespace kvcast::config
