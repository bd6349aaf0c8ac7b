#include "device/main.hpp"

#include <cuda_runtime.h>

#include <cstdio>

#include "device/system.hpp"
#include "harness/host.hpp"
#include "harness/run.hpp"

namespace kvcast::kernels {

int device_main(int argc, char** argv, const std::string& name, std::vector<Bench> (*benches)(const Machine&)) {
  return guarded_main(argc, argv, [&](const Options& options) {
    Program program;
    program.name = name;
    program.machine = host_machine();
    program.environment = host_environment(name);
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    const bool present = status == cudaSuccess && devices > 0;
    if (!present && !options.list) {
      std::fprintf(stderr, "no CUDA device: %s\n", cudaGetErrorString(status));
      return 1;
    }
    if (present) {
      program.machine = device_machine(program.machine);
      add_device_environment(program.environment);
    }
    program.benches = benches(program.machine);
    return run_program(program, options);
  });
}

}  // namespace kvcast::kernels
