#include "base/floats.hpp"

#include "base/large_pages.hpp"

namespace kvcast {

Floats uninitialised_floats(std::size_t n) {
  auto floats = std::make_unique_for_overwrite<float[]>(n);
  advise_large_pages(floats.get(), n * sizeof(float));
  return floats;
}

}  // namespace kvcast
