// Checks every kernel against its reference on the emulator.
#include "cuda/all.hpp"
#include "harness/host.hpp"
#include "harness/run.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return guarded_main(argc, argv, [](const Options& options) {
    Program program;
    program.name = "kvcast-kernels-emulated";
    program.machine = host_machine();
    program.environment = host_environment(program.name);
    program.benches = kernel_benches(program.machine);
    return run_program(program, options);
  });
}
