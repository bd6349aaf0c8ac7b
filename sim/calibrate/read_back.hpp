// Reads what a calibration has made before it is written: fitted numbers may be beyond what a profile may state.
#pragma once

#include <string>

#include "config/hardware.hpp"

namespace kvcast::calibrate {

// Each throws UserError with the complaint of the reader of profiles, if it has one.
void check_host(const std::string& yaml);     // a file of configs/hosts
void check_profile(const std::string& yaml);  // a file of configs/hardware
// A part that profiles include, here over the numbers of this machine.
void check_part(const std::string& yaml, config::Hardware machine);

}  // namespace kvcast::calibrate
