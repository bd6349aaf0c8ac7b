#include <cuda_runtime.h>

#include <cstdio>

#include "cuda/all.hpp"
#include "device/system.hpp"
#include "harness/host.hpp"
#include "harness/run.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return guarded_main(argc, argv, [](const Options& options) {
    Program program;
    program.name = "kvcast-kernels";
    program.machine = host_machine();
    program.environment = host_environment(program.name);
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
    program.benches = kernel_benches(program.machine);
    for (Bench& bench : runtime_benches(program.machine)) program.benches.push_back(std::move(bench));
    return run_program(program, options);
  });
}
