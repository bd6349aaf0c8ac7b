// The vocabulary of kernels: one name for each instruction that matters, as CUDA for nvcc and on the emulator for a
// plain C++ compiler. Warps have 32 threads; collectives are called by all lanes of a warp together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "harness/half.hpp"
#include "harness/input.hpp"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define KVCAST_DEVICE __device__ __forceinline__
// Kernels are defined in headers that several files include.
#define KVCAST_KERNEL static __global__ void
#define KVCAST_BOUNDS(threads) __launch_bounds__(threads)
// Requests this many resident blocks per multiprocessor.
#define KVCAST_BOUNDS_RESIDENT(threads, blocks) __launch_bounds__(threads, blocks)
#define KVCAST_UNROLL _Pragma("unroll")
#define KVCAST_ROLLED _Pragma("unroll 1")
#else
#include <cmath>

#include "device/emulator.hpp"
#define KVCAST_KERNEL inline void
#define KVCAST_DEVICE inline
#define KVCAST_BOUNDS(threads)
#define KVCAST_BOUNDS_RESIDENT(threads, blocks)
#define KVCAST_UNROLL
#define KVCAST_ROLLED
#endif

namespace kvcast::kernels {

// 16 bytes that move together.
struct alignas(16) Vec16 {
  std::uint32_t w[4];
};

#ifdef __CUDACC__
#include "device/device_cuda.inl"
#else
#include "device/device_host.inl"
#endif

KVCAST_DEVICE unsigned lane_index() { return thread_x() & 31u; }
KVCAST_DEVICE unsigned warp_index() { return thread_x() >> 5; }

KVCAST_DEVICE float warp_sum(float x) {
  KVCAST_UNROLL
  for (unsigned m = 16; m > 0; m >>= 1) x += warp_xor(x, m);
  return x;
}
KVCAST_DEVICE float warp_max(float x) {
  KVCAST_UNROLL
  for (unsigned m = 16; m > 0; m >>= 1) {
    const float other = warp_xor(x, m);
    x = other > x ? other : x;
  }
  return x;
}

// Packs two halves into a 32-bit word, low one first.
KVCAST_DEVICE std::uint32_t pack2(float low, float high) {
  return std::uint32_t{to_half(low).bits} | (std::uint32_t{to_half(high).bits} << 16);
}
KVCAST_DEVICE float low_half(std::uint32_t w) { return to_float(Half{static_cast<std::uint16_t>(w & 0xFFFFu)}); }
KVCAST_DEVICE float high_half(std::uint32_t w) { return to_float(Half{static_cast<std::uint16_t>(w >> 16)}); }

// Unpacks eight halves as floats.
KVCAST_DEVICE void unpack8(const Vec16& v, float* out) {
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = low_half(v.w[i]);
    out[2 * i + 1] = high_half(v.w[i]);
  }
}

// Two products of 16 dimensions each, from 32 of which every lane holds the eight from lane % 4 · 8 on: rows lane / 4
// and that + 8 of a, column lane / 4 of b. A product takes dimension 8 j + 4 s + 2 q + e as its 8 q + 2 j + e in step
// s: a sum does not depend on the order, and both sides are read 16 bytes at a time.
KVCAST_DEVICE void multiply_add_pair(float (&c)[4], const Vec16 (&a)[2], const Vec16& b) {
  KVCAST_UNROLL
  for (int s = 0; s < 2; ++s) {
    const std::uint32_t rows[4] = {a[0].w[2 * s], a[1].w[2 * s], a[0].w[2 * s + 1], a[1].w[2 * s + 1]};
    multiply_add(c, rows, b.w[2 * s], b.w[2 * s + 1]);
  }
}

// Minus infinity as far as softmax is concerned, without NaN from its differences.
inline constexpr float kLowest = -1e30f;

}  // namespace kvcast::kernels
