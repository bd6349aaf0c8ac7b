// Advises the system how to back large allocations.
#pragma once

#include <cstddef>

namespace kvcast {

// Requests large pages (2 MiB) for the whole ones within `bytes` from `begin`. Call it before the memory is touched;
// only time depends on whether the system complies.
void advise_large_pages(void* begin, std::size_t bytes);

}  // namespace kvcast
