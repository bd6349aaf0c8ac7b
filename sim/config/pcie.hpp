// Bandwidth of a PCI Express link by generation and lanes.
#pragma once

namespace kvcast::config {

inline constexpr int kOldestPcie = 1, kNewestPcie = 7;
inline constexpr int kFirstPcie = 3, kMostLanes = 16;  // of links that a run may choose: kFirstPcie to kNewestPcie

// Bytes/s of one direction after line coding, before packet headers. generation: kOldestPcie to kNewestPcie.
//
// PCI Express Base Specification: 2.5, 5, 8, 16, 32, 64, 128 GT/s a lane (revisions 1.0 to 7.0); 8b/10b coding up to
// revision 2.0, 128b/130b up to 5.0; from 6.0 on, flits of 256 bytes, 14 of which are CRC and error correction.
double pcie_bandwidth(int generation, int lanes);

}  // namespace kvcast::config
