#include "base/floats.hpp"

#include <new>

#include "base/failure.hpp"
#include "base/system_memory.hpp"

namespace kvcast {

Floats uninitialised_floats(std::size_t n, const char* wanted_for) {
  Floats floats(new (std::nothrow) float[n]);
  if (floats == nullptr) throw NoMemory(n * sizeof(float), wanted_for);
  advise_large_pages(floats.get(), n * sizeof(float));
  return floats;
}

}  // namespace kvcast
