// Rounding to the two 8-bit floating-point formats of the OCP 8-bit Floating Point Specification.
#pragma once

namespace kvcast {

// The nearest number of the format, ties to even; numbers that are too large become the largest one. Rounding keeps the
// order of numbers.
float nearest_e4m3(float x);  // three bits of fraction, steps down to 2^-9, at most 448
float nearest_e5m2(float x);  // two bits of fraction, steps down to 2^-16, at most 57344

}  // namespace kvcast
