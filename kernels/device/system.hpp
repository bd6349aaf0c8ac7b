// The GPU and the peaks of its data sheet.
#pragma once

#include "harness/bench.hpp"

namespace kvcast::kernels {

// Adds the device's part to the host's. Throws std::runtime_error if there is no device.
Machine device_machine(Machine host);
// Device, driver, runtime, clocks, caches, link. The link is read while a copy keeps it busy: idle ones power down.
void add_device_environment(Json& environment);
double device_clock_hz();  // its highest, as the device reports it; 0 if it does not
// That, or less if the device does not reach it under a light load: clocks may be locked. Measured once.
double reached_clock_hz();

}  // namespace kvcast::kernels
