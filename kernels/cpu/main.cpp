#include "cpu/all.hpp"
#include "harness/host.hpp"
#include "harness/run.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return guarded_main(argc, argv, [](const Options& options) {
    Program program;
    program.name = "kvcast-kernels-cpu";
    program.machine = host_machine();
    program.environment = host_environment(program.name);
    program.benches = cpu_benches(program.machine);
    return run_program(program, options);
  });
}
