// Part of device.hpp for plain C++: the same names on the emulator. Fragment layouts: PTX ISA, sections of mma.m16n8k16
// and ldmatrix.
inline unsigned thread_x() { return emulator::thread_index(); }
inline unsigned block_threads() { return emulator::block_size(); }
inline unsigned block_x() { return emulator::block_index().x; }
inline unsigned block_y() { return emulator::block_index().y; }
inline unsigned block_z() { return emulator::block_index().z; }
inline unsigned grid_x() { return emulator::grid_size().x; }
inline unsigned grid_y() { return emulator::grid_size().y; }

inline unsigned char* shared_memory() { return emulator::shared(); }
inline void block_sync() { emulator::block_barrier(); }
inline void warp_sync() { emulator::exchange(nullptr, 0); }

inline float to_float(Half h) { return value_of(h); }
inline Half to_half(float x) { return half_of(x); }
inline std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) { return (a & 0xFFFFu) | (b << 16); }
inline std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) { return (a >> 16) | (b & 0xFFFF0000u); }
inline std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  const auto half = [](std::uint32_t w) { return value_of(Half{static_cast<std::uint16_t>(w)}); };
  return half_of(half(a) * half(b)).bits | std::uint32_t{half_of(half(a >> 16) * half(b >> 16)).bits} << 16;
}
inline float as_float(std::uint32_t u) { return bits_float(u); }
inline std::uint32_t as_bits(float x) { return float_bits(x); }

template <typename T>
inline T warp_from(T x, unsigned lane) {
  static_assert(sizeof(T) == 4);
  std::uint32_t word;
  std::memcpy(&word, &x, 4);
  std::memcpy(&x, emulator::exchange(&word, 1).from(lane & 31u), 4);
  return x;
}
inline float warp_xor(float x, unsigned mask) {
  const std::uint32_t word = float_bits(x);
  return bits_float(*emulator::exchange(&word, 1).from((emulator::thread_index() & 31u) ^ mask));
}
inline std::uint32_t warp_ballot(bool p) {
  const std::uint32_t word = p;
  const auto all = emulator::exchange(&word, 1);
  const std::uint32_t live = emulator::live_lanes();
  std::uint32_t out = 0;
  for (unsigned l = 0; l < 32; ++l) out |= ((live >> l) & 1u) && *all.from(l) ? 1u << l : 0u;
  return out;
}
inline unsigned count_bits(std::uint32_t x) { return static_cast<unsigned>(__builtin_popcount(x)); }

inline Vec16 load16(const void* p) {
  emulator::require_aligned(p, 16);
  Vec16 v;
  std::memcpy(&v, p, 16);
  return v;
}
inline std::uint32_t load4(const void* p) {
  emulator::require_aligned(p, 4);
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}
inline void store16(void* p, const Vec16& v) {
  emulator::require_aligned(p, 16);
  std::memcpy(p, &v, 16);
}
inline void store16_shared(void* p, const Vec16& v) { store16(p, v); }
template <typename T>
inline T atomic_add(T* p, T x) {
  const T old = *p;
  *p = old + x;
  return old;
}
inline std::uint32_t atomic_or(std::uint32_t* p, std::uint32_t x) {
  const std::uint32_t old = *p;
  *p = old | x;
  return old;
}

inline float exp2_fast(float x) { return std::exp2(x); }
inline float log2_fast(float x) { return std::log2(x); }

inline void copy_async(void* to, const void* from, bool valid) { emulator::copy_async(to, from, valid); }
inline void copy_commit() { emulator::copy_commit(); }
template <int kGroupsLeft>
inline void copy_wait() {
  emulator::copy_wait(kGroupsLeft);
}

namespace emulated {

// Element (row, column) of the matrix whose rows lanes 8 m .. 8 m + 7 point at.
inline std::uint32_t element(const emulator::Exchange& rows, unsigned matrix, unsigned row, unsigned column) {
  const std::uint32_t* words = rows.from(8 * matrix + row);
  const std::uint64_t address = words[0] | (std::uint64_t{words[1]} << 32);
  const Half* at = reinterpret_cast<const Half*>(address);
  return at[column].bits;
}

inline void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed) {
  emulator::require_aligned(row, 16);
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(row);
  const std::uint32_t words[2] = {static_cast<std::uint32_t>(address), static_cast<std::uint32_t>(address >> 32)};
  const auto rows = emulator::exchange(words, 2);
  const unsigned lane = emulator::thread_index() & 31u, i = lane / 4, j = lane % 4 * 2;
  for (unsigned m = 0; m < 4; ++m) {
    const std::uint32_t low = transposed ? element(rows, m, j, i) : element(rows, m, i, j);
    const std::uint32_t high = transposed ? element(rows, m, j + 1, i) : element(rows, m, i, j + 1);
    r[m] = low | (high << 16);
  }
}

}  // namespace emulated

inline void load_matrices(std::uint32_t (&r)[4], const void* row) { emulated::load_matrices(r, row, false); }
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) { emulated::load_matrices(r, row, true); }

inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const std::uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto all = emulator::exchange(words, 6);
  const auto half = [&](unsigned lane, unsigned reg, unsigned k) {
    return value_of(Half{static_cast<std::uint16_t>(all.from(lane)[reg] >> (16 * (k % 2)))});
  };
  const unsigned lane = emulator::thread_index() & 31u;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      sum += half(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8), k) * half(column * 4 + k % 8 / 2, 4 + k / 8, k);
    }
    c[i] += sum;
  }
}
