// The cost of an op: the time it takes by itself, and its demands on shared resources.
#pragma once

#include <boost/container/small_vector.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/origin.hpp"
#include "base/units.hpp"

namespace kvcast::hardware {

// Resources that ops compete for. Units and sharing are the engine's: fair resources are shared by all ops that work,
// fifo resources serve one op at a time in the order in which ops become ready.
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

struct Demand {
  Resource resource = Resource::kHbm;
  double amount = 0;  // in the resource's unit, > 0; includes efficiencies: alone, the op takes amount / rate
};

// Issuing of a copy whose engine is slower than the calls that feed it. The thread is busy with `first` before the copy
// can start and with `rest` while it runs; it is free long before the copy ends. If the calls are slower, the thread is
// one of the demands instead, and the copy occupies it until its end.
struct Issue {
  Resource thread = Resource::kHostThread;
  double first = 0, rest = 0;  // seconds
};

struct Cost {
  // The op waits for the latency without using anything, then works until all demands are served together.
  Picoseconds latency = 0;
  boost::container::small_vector<Demand, 7> demands;  // each resource at most once
  std::optional<Issue> issue;
  double weight = 1;  // weight by which its speed grows relative to others when resources are shared

  double alone = 0;                // seconds with every resource idle, issue->first included
  std::optional<Resource> bound;   // bottleneck alone: the largest demand; none if waiting takes longer
  Origin origin = Origin::kExact;  // worst of the numbers that make up 5 % of `alone` or more
  float uncertainty = 0;           // relative half-width of the interval around `alone`
  bool extrapolated = false;       // one of these numbers was used outside the range for which it was established
};

}  // namespace kvcast::hardware
