// The executable `kvcast`.
#include <unistd.h>

#include <cstdlib>

#include "app/command_line.hpp"
#include "app/exit.hpp"
#include "app/interrupt.hpp"
#include "base/blas.hpp"
#include "base/failure.hpp"
#include "base/system_memory.hpp"

namespace {

// OpenBLAS starts threads with the program and maps memory for each, which kvcast does not use, before any line of main
// runs. Where memory is limited, the program begins again without them.
void save_memory(char** argv) {
  constexpr const char* kThreads = "OPENBLAS_NUM_THREADS";
  if (!kvcast::memory_is_limited()) return;
  if (std::getenv(kThreads) == nullptr && ::setenv(kThreads, "1", 1) == 0) {
    ::execv("/proc/self/exe", argv);  // goes on with them if this fails
  }
  try {
    const kvcast::BlasTurn turn;  // its memory is mapped before the stacks of threads take what there is
  } catch (const kvcast::NoMemory&) {
    // Many commands multiply nothing; the others say what is missing.
  }
}

}  // namespace

int main(int argc, char** argv) {
  save_memory(argv);
  kvcast::app::prepare_standard_streams();
  kvcast::keep_freed_memory();
  kvcast::app::end_cleanly_on_signals();
  return kvcast::app::exit_code_of([argc, argv] { return kvcast::app::run_command_line(argc, argv); });
}
