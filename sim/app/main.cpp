// The executable `kvcast`.
#include <malloc.h>

#include <climits>

#include "app/command_line.hpp"
#include "app/exit.hpp"
#include "app/interrupt.hpp"

namespace {

// Replays allocate and free megabytes thousands of times. Kept in one heap they are reused at once; returned to the
// system each page would be cleared again, which takes an eighth of a long context's replay.
void keep_freed_memory() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest allowed value
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::app::prepare_standard_streams();
  keep_freed_memory();
  kvcast::app::end_cleanly_on_signals();
  return kvcast::app::exit_code_of([argc, argv] { return kvcast::app::run_command_line(argc, argv); });
}
