// The executable `kvcast`.
#include "app/command_line.hpp"
#include "app/exit.hpp"
#include "app/interrupt.hpp"
#include "base/system_memory.hpp"

int main(int argc, char** argv) {
  kvcast::app::prepare_standard_streams();
  kvcast::keep_freed_memory();
  kvcast::app::end_cleanly_on_signals();
  return kvcast::app::exit_code_of([argc, argv] { return kvcast::app::run_command_line(argc, argv); });
}
