#include "config/pcie.hpp"

#include "base/error.hpp"

namespace kvcast::config {

double pcie_bandwidth(int generation, int lanes) {
  KVCAST_CHECK(generation >= kOldestPcie && generation <= kNewestPcie);
  constexpr double kGigatransfers[] = {2.5, 5, 8, 16, 32, 64, 128};
  const double coding = generation <= 2 ? 8.0 / 10 : generation <= 5 ? 128.0 / 130 : 242.0 / 256;
  constexpr double kBitsPerByte = 8;
  return lanes * kGigatransfers[generation - 1] * 1e9 * coding / kBitsPerByte;
}

}  // namespace kvcast::config
