#include "device/runtime.hpp"

namespace kvcast::kernels {

std::vector<float> half_normals_host(std::uint64_t seed, std::size_t first, std::size_t n) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = value_of(half_of(random_normal(seed, first + i)));
  return out;
}

std::vector<float> floats_of(const DeviceArray<Half>& halves) {
  std::vector<float> out;
  for (const Half h : halves.host()) out.push_back(value_of(h));
  return out;
}

}  // namespace kvcast::kernels
