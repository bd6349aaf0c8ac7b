#include "device/main.hpp"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "device/system.hpp"
#include "harness/host.hpp"
#include "harness/run.hpp"

namespace kvcast::kernels {

namespace {

constexpr double kCaseSeconds = 120;  // no case takes a tenth of it: a longer one hangs

// An illegal access is permanent: every later call returns the error again, until the process ends.
std::string why_broken() {
  const cudaError_t status = cudaDeviceSynchronize();
  cudaGetLastError();
  return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

// Clears settings that frameworks and debuggers leave in the environment: launches that wait would wait for a held
// stream, and with one hardware queue for all streams nothing runs concurrently.
void plain_environment() {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
}

}  // namespace

int device_main(int argc, char** argv, const std::string& name, std::vector<Bench> (*benches)(const Machine&)) {
  plain_environment();
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
    program.broken = why_broken;
    program.case_seconds = kCaseSeconds;
    program.benches = benches(program.machine);
    return run_program(program, options);
  });
}

}  // namespace kvcast::kernels
