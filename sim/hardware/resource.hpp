// Resources that ops compete for. Units and sharing are the engine's: fair resources are shared by all ops that work,
// fifo resources serve one op at a time in the order in which ops become ready.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvcast::hardware {

enum class Resource : std::uint16_t {
  kHbm,           // bytes; fair
  kTensor,        // FLOP on tensor cores; fair
  kVector,        // FLOP on fp32 units; fair
  kH2d,           // seconds of the copy engine of this direction; fifo
  kD2h,           // seconds of the copy engine of this direction; fifo
  kZeroCopy,      // seconds of the load path by which kernels reach host memory; fair
  kLinkIn,        // bytes to the device; fair
  kLinkOut,       // bytes from the device; fair
  kLink,          // bytes of both directions; fair
  kPeer,          // bytes received from other GPUs; fair
  kDram,          // bytes of host memory; fair
  kCores,         // core-seconds of the CPU workers; fair
  kHostThread,    // seconds; fifo
  kRecallThread,  // seconds; fifo
  kBackupThread,  // seconds; fifo
};
inline constexpr int kResourceCount = 15;

std::string_view resource_name(Resource resource);
bool is_fifo(Resource resource);

}  // namespace kvcast::hardware
