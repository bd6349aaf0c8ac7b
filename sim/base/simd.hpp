// Vector instructions: one program runs on CPUs with and without AVX-512.
#pragma once

#include <span>

#include "base/simd_loops.hpp"

namespace kvcast {

// The loops for each kind of vector instructions that this CPU has, the widest last.
std::span<const SimdLoops> simd_loops();

}  // namespace kvcast
