// The main function of a program that measures on a GPU.
#pragma once

#include <string>
#include <vector>

#include "harness/bench.hpp"

namespace kvcast::kernels {

// Runs benchmarks of device 0. `benches` is called when the machine is known.
int device_main(int argc, char** argv, const std::string& program, std::vector<Bench> (*benches)(const Machine&));

}  // namespace kvcast::kernels
