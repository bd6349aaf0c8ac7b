// Compiled for AVX-512 (x86-64-v4), with 32 registers of 16 floats; empty for compilers and CPUs without it.
#ifdef __AVX512F__
#define KVCAST_LANES 16
#define KVCAST_ROWS 12
#include "base/simd_kernels.hpp"

namespace kvcast {

SimdLoops avx512_loops();
SimdLoops avx512_loops() { return {pack_columns, copy_columns, pack_rows, multiply, largest, exponentials, add}; }

}  // namespace kvcast
#endif
