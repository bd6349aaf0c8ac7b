// Bandwidth of a PCI Express link by generation and lanes.
#pragma once

#include "base/error.hpp"

namespace kvcast::config {

inline constexpr int kOldestPcie = 1, kNewestPcie = 7;
inline constexpr int kFirstPcie = 3, kMostLanes = 16;  // of links that a run may choose: kFirstPcie to kNewestPcie

// Bytes/s of one direction after line coding, before packet headers. generation: kOldestPcie to kNewestPcie.
//
// PCI Express Base Specification: 2.5, 5, 8, 16, 32, 64, 128 GT/s a lane (revisions 1.0 to 7.0); 8b/10b coding up to
// revision 2.0, 128b/130b up to 5.0; from 6.0 on, flits of 256 bytes, 14 of which are CRC and error correction.
inline double pcie_bandwidth(int generation, int lanes) {
  KVCAST_CHECK(generation >= kOldestPcie && generation <= kNewestPcie);
  constexpr double kGigatransfers[] = {2.5, 5, 8, 16, 32, 64, 128}, kBitsPerByte = 8;
  const double coding = generation <= 2 ? 8.0 / 10 : generation <= 5 ? 128.0 / 130 : 242.0 / 256;
  return lanes * kGigatransfers[generation - 1] * 1e9 * coding / kBitsPerByte;
}

}  // namespace kvcast::config
