// Attribution of the time of a window of decode steps.
//
// Each instant is charged to one op: while the model's stream runs a kernel, to that kernel; while the stream is idle,
// to the op that it waits for (a transfer, work on side streams, the CPU workers, the host). The part of an op's time
// that is not charged to it was hidden behind other ops.
//
// The bottleneck of the window comes from its critical path instead, which leads back from the end, from each op to the
// one whose finish let it start. A kernel that is shorter than the call that launches the next one is exposed, because
// the stream runs it; but the calls are the bottleneck of the step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "graph/op.hpp"

namespace kvcast::metrics {

// The bottleneck of an op that runs alone.
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

struct BusySpan {
  Picoseconds start = 0, finish = 0;
  graph::Kind kind = graph::Kind::kMarker;
  graph::Lane lane = graph::Lane::kCompute;
  Bound bound = Bound::kHbm;
  float uncertainty = 0;           // uncertainty of the op's cost
  Origin origin = Origin::kExact;  // origin of the op's cost
};

// Seconds by operation kind and, within a kind, by bottleneck.
using KindsByBound = std::array<std::array<double, kBoundCount>, graph::kKindCount>;

std::array<double, kBoundCount> by_bound(const KindsByBound& path);
std::array<double, graph::kKindCount> by_kind(const KindsByBound& path);

struct Attribution {
  std::array<double, graph::kKindCount> exposed{}, hidden{};  // seconds over the window, by kind
  std::array<double, kBoundCount> bound{};                    // seconds of the critical path by bottleneck
  KindsByBound path{};                                        // the critical path by kind and bottleneck
  std::array<double, kOriginCount> origin{};                  // exposed seconds by origin of the cost
  double idle = 0;                                            // charged to nothing: gaps that no op explains
  std::array<double, graph::kKindCount> uncertain{};          // Σ exposed seconds · uncertainty, by kind
  double total() const;                                       // length of the window, seconds
  double uncertain_total() const;                             // if all costs err in the same direction
};

// Charges the window [begin, end) to the spans that overlap it, in any order. Exposed times and idle add up to the
// window; so do the critical path and its unexplained gaps.
Attribution attribute(std::vector<BusySpan> spans, Picoseconds begin, Picoseconds end);

}  // namespace kvcast::metrics
