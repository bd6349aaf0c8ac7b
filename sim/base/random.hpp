// Counter-based random streams: the i-th number of a stream is a pure function of (seed, names, i), so any part of a
// trace can be made separately, in any order, on any number of threads, and is the same on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace kvcast {

class Stream {
 public:
  explicit Stream(std::uint64_t seed) : key_(mix(seed + kGolden)) {}

  // An independent stream below this one, named by numbers (layer, head, purpose, ...).
  Stream child(std::initializer_list<std::uint64_t> names) const {
    Stream s = *this;
    for (const std::uint64_t n : names) s.key_ = mix(s.key_ ^ mix(n + kGolden));
    return s;
  }

  // 64 random bits. SplitMix64's finaliser over a Weyl sequence (Steele, Lea, Flood 2014) keyed by the stream.
  std::uint64_t bits(std::uint64_t i) const { return mix(key_ + (i + 1) * kGolden); }
  // In [0, 1), 53 bits.
  double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1.0p-53; }
  // In [0, n) for n > 0. The bias is negligible for n far below 2^64.
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(bits(i)) * n) >> 64);
  }
  // Standard normal, exact to double precision (inverse of the distribution function).
  double normal(std::uint64_t i) const;
  // n standard normals in single precision, numbers first .. first + n − 1 of the stream, fast: 16 bits each through
  // a table of quantiles (largest value 4.3; moments as the normal's to 1e-3). first must be a multiple of 4.
  void normals(std::uint64_t first, std::uint64_t n, float* out) const;

 private:
  static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::uint64_t key_;
};

}  // namespace kvcast
