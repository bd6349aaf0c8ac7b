#include "base/simd.hpp"

#include <vector>

#include "base/simd_kernels.hpp"

namespace kvcast {

#ifdef KVCAST_AVX512
SimdLoops avx512_loops();  // simd_avx512.cpp
#endif

std::span<const SimdLoops> simd_loops() {
  static const std::vector<SimdLoops> loops = [] {
    std::vector<SimdLoops> all = {{pack_columns, copy_columns, pack_rows, multiply, largest, exponentials, add}};
#ifdef KVCAST_AVX512
    if (__builtin_cpu_supports("x86-64-v4")) all.push_back(avx512_loops());
#endif
    return all;
  }();
  return loops;
}

}  // namespace kvcast
