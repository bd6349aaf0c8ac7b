// Advice to the system on how to back large memory.
#pragma once

#include <cstddef>

namespace kvcast {

// Asks for large pages (2 MiB) where `bytes` from `begin` on hold whole ones. To be given before the memory is touched;
// nothing but time depends on whether the system takes it.
void advise_large_pages(void* begin, std::size_t bytes);

}  // namespace kvcast
