// Compiled for AVX-512 (x86-64-v4), with 32 registers of 16 floats; empty for compilers and CPUs without it.
#ifdef __AVX512F__
#define KVCAST_LANES 16
#define KVCAST_ROWS 12
#include "base/causal_kernel.hpp"

namespace kvcast {

CausalTile causal_tile_avx512();
CausalTile causal_tile_avx512() { return {pack, score, largest, exponentials, add}; }

}  // namespace kvcast
#endif
