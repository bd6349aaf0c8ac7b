// Large arrays of floats that are written before they are read.
#pragma once

#include <cstddef>
#include <memory>

namespace kvcast {

// Not zeroed: who fills it touches its pages first. Large pages where the system has them: taking hundreds of megabytes
// in small ones costs as much as filling them.
using Floats = std::unique_ptr<float[]>;
Floats uninitialised_floats(std::size_t n);

}  // namespace kvcast
