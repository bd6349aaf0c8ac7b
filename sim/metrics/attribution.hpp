// Where the time of a window of decode steps goes.
//
// Each instant is charged to one op: while the model's stream runs a kernel, to that kernel; while it stands idle, to
// what it waits for: a transfer, work on side streams, the CPU workers, the host. What an op takes beyond the time
// charged to it was hidden behind others.
//
// What sets the pace of the window is told by its critical path instead: from the end back, each op to the one whose
// finish let it start. A kernel that is shorter than the call that launches the next one is exposed, for the stream
// runs it; but the calls are what the step takes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "graph/op.hpp"

namespace kvcast::metrics {

// What sets the pace of an op when it runs alone.
enum class Bound : std::uint8_t {
  kHbm,
  kTensor,
  kVector,
  kLink,
  kCopyEngine,
  kDram,
  kCores,
  kKernelLatency,
  kHostThread
};
inline constexpr int kBoundCount = 9;
inline constexpr int kOriginCount = static_cast<int>(Origin::kExtrapolated) + 1;  // the last one is the worst
std::string_view bound_name(Bound bound);

struct Span {
  Picoseconds start = 0, finish = 0;
  graph::Kind kind = graph::Kind::kMarker;
  graph::Lane lane = graph::Lane::kCompute;
  Bound bound = Bound::kHbm;
  float uncertainty = 0;           // of the op's cost
  Origin origin = Origin::kExact;  // of the op's cost
};

// Seconds by operation kind, and of each kind by what set its pace.
using KindsByBound = std::array<std::array<double, kBoundCount>, graph::kKindCount>;

std::array<double, kBoundCount> by_bound(const KindsByBound& path);

struct Attribution {
  std::array<double, graph::kKindCount> exposed{}, hidden{};  // seconds over the window, by kind
  std::array<double, kBoundCount> bound{};                    // seconds of the critical path by what set their pace
  KindsByBound path{};                                        // the critical path by kind and by what set the pace
  std::array<double, kOriginCount> origin{};                  // exposed seconds by origin of the cost
  double idle = 0;                                            // charged to nothing: gaps that no op explains
  std::array<double, graph::kKindCount> uncertain{};          // Σ exposed seconds · uncertainty, by kind
  double total() const;                                       // length of the window, seconds
  double uncertain_total() const;                             // all costs off in the same direction
};

// Charges the window [begin, end) to the spans that overlap it, in any order. Exposed times and idle add up to the
// window; so do the critical path and what nothing explains.
Attribution attribute(std::vector<Span> spans, Picoseconds begin, Picoseconds end);

}  // namespace kvcast::metrics
