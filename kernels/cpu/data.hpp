// Inputs of the CPU benchmarks.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "harness/bench.hpp"
#include "harness/half.hpp"
#include "harness/input.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

// Memory on pages of 4 KiB, whatever the system's setting for large ones: the CUDA runtime pins such pages for KV pairs
// on the host, and rows gathered at random take twice as long as on pages of 2 MiB.
template <typename T>
struct SmallPages {
  using value_type = T;
  SmallPages() = default;
  template <typename Other>
  SmallPages(const SmallPages<Other>&) {}
  T* allocate(std::size_t n) {
    void* at = ::mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    ::madvise(at, n * sizeof(T), MADV_NOHUGEPAGE);
    return static_cast<T*>(at);
  }
  void deallocate(T* at, std::size_t n) { ::munmap(at, n * sizeof(T)); }
  // Leaves the elements as they are: a page belongs to the memory of the thread that writes to it first.
  template <typename Other>
  void construct(Other*) {}
  template <typename Other, typename... From>
  void construct(Other* at, From&&... from) {
    ::new (static_cast<void*>(at)) Other(std::forward<From>(from)...);
  }
  template <typename Other>
  bool operator==(const SmallPages<Other>&) const {
    return true;
  }
};
using Rows = std::vector<std::uint16_t, SmallPages<std::uint16_t>>;  // bfloat16

// Standard normal numbers.
inline Rows bf16_normals(std::uint64_t seed, std::size_t n) {
  Rows out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = bf16_of(random_normal(seed, i));
  return out;
}

// Fills four elements at a time, from the first on, cheaply: 4 bits of a random word vary sign and exponent, the rest
// the mantissa. Not normal, never zero.
inline void fill_noise(std::uint64_t seed, std::size_t first, std::size_t last, Rows& out) {
  for (std::size_t i = 4 * first; i < std::min(4 * last, out.size()); i += 4) {
    const std::uint64_t bits = random_bits(seed, i);
    for (std::size_t j = 0; j < std::min<std::size_t>(4, out.size() - i); ++j) {
      const std::uint16_t part = static_cast<std::uint16_t>(bits >> (16 * j));
      out[i + j] = static_cast<std::uint16_t>((part & 0x81FFu) | 0x3E00u);
    }
  }
}

inline Rows bf16_noise(std::uint64_t seed, std::size_t n) {
  Rows out(n);
  fill_noise(seed, 0, (n + 3) / 4, out);
  return out;
}

// The same, filled by all threads of the pool. The last table is kept: cases that follow each other often have the same
// one, and a large one takes seconds. The reference is valid until the next call.
inline const Rows& noise_table(std::uint64_t seed, std::size_t n, Pool& pool) {
  static Rows kept;
  static std::uint64_t kept_seed = 0;
  if (kept.size() == n && kept_seed == seed) return kept;
  kept = Rows();  // both may not fit
  kept = Rows(n);
  kept_seed = seed;
  pool.split((n + 3) / 4, [&](std::size_t first, std::size_t last) { fill_noise(seed, first, last, kept); });
  return kept;
}

inline std::vector<float> normals(std::uint64_t seed, std::size_t n) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = random_normal(seed, i);
  return out;
}

inline std::vector<float> values_of(const Rows& bf16) {
  std::vector<float> out(bf16.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_value(bf16[i]);
  return out;
}

// Returns distinct tokens of 0 .. n−1 in count / run runs of `run` neighbours; the runs are in random order.
inline std::vector<std::uint32_t> random_runs(std::uint64_t seed, std::uint32_t n, std::uint32_t count,
                                              std::uint32_t run) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < count / run; ++i) {
    const std::uint32_t start = permuted(seed, i, n / run) * run;
    for (std::uint32_t j = 0; j < run; ++j) ids.push_back(start + j);
  }
  return ids;
}

// Number of calls that can each read `read` of the `there` rows without repeating any; at most 64. A case that read the
// same rows repeatedly would find some of them in a cache, whatever is read in between.
inline std::size_t fresh_calls(const State& state, std::size_t there, std::size_t read) {
  constexpr std::size_t kMostCalls = 64;
  return state.checking() || state.mode() != Mode::kCold ? 1 : std::clamp<std::size_t>(there / read, 1, kMostCalls);
}

// Skips a case that needs more threads than there are cores, because it would measure the scheduler.
inline bool too_many_threads(const Machine& machine, std::int64_t threads) { return threads > machine.cores; }

// Skips a case whose tables leave too little memory for everything else.
inline bool too_large(const Machine& machine, double bytes) { return bytes > 0.75 * machine.dram_bytes; }

}  // namespace kvcast::kernels
