// The pipelines on the emulator: each scheme against plain attention over the same selection.
#include "harness/host.hpp"
#include "harness/run.hpp"
#include "pipeline/all.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return guarded_main(argc, argv, [](const Options& options) {
    Program program;
    program.name = "kvcast-pipeline-emulated";
    program.machine = host_machine();
    program.environment = host_environment(program.name);
    program.benches = pipeline_benches(program.machine);
    return run_program(program, options);
  });
}
