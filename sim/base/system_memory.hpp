// How the system backs the program's memory: only time depends on it.
#pragma once

#include <cstddef>

namespace kvcast {

// Requests large pages (2 MiB) for the whole ones within `bytes` from `begin`. Call it before the memory is touched.
void advise_large_pages(void* begin, std::size_t bytes);

// Keeps freed memory in the program, for all of it; call it before other threads start.
void keep_freed_memory();

}  // namespace kvcast
