// Sensitivity of recorded times to the costs of each source, from one pass over the recorded schedule.
//
// Costs with the same source err together. Two experiments can therefore be compared: the effects of a source that both
// depend on cancel.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/attribution.hpp"
#include "simulate/schedule.hpp"

namespace kvcast::simulate {

// Blocks of a recorded run whose time is analysed. The recorder must also have kept the block before them, if there is
// one: ops that still run when that block ends are part of the schedule.
struct RecordedBlocks {
  const engine::System* system = nullptr;
  const TimedSource* source = nullptr;
  const Recorder* recorder = nullptr;
  std::size_t first = 0, count = 1;
  double weight = 1;  // weight of their mean time among those of other runs
  // The blocks are a steady state. Shifts under which work is left over from block to block are run anew.
  bool steady = true;
};

// Factors on a time when the costs of one source are longer, and shorter, by their uncertainty.
struct TimeEffect {
  std::string source;              // as written in the profile
  double longer = 1, shorter = 1;  // shifted time over the time as recorded
  // Attribution of the shifted time, mean over blocks; only if requested.
  std::optional<metrics::Attribution> longer_time, shorter_time;
  // A backlog of work was still growing under a shift; more warm-up steps would show where it ends.
  bool unsettled = false;
};

// Effects of the sources that could change the weighted mean time of a block by at least `least_share`, ordered by
// source. A schedule does not become longer by more than the sum of the uncertainties of its ops, so sources for which
// this sum is below the share are skipped.
std::vector<TimeEffect> time_effects(std::span<const RecordedBlocks> runs, double least_share, bool attributed);

// Keys of the machine's and the framework's numbers with this source: "gpu.hbm_bandwidth", "framework.engine_step".
std::vector<std::string> keys_of(const config::Hardware& hardware, const config::Framework& framework,
                                 const std::string& source);

// Attribution of the mean time of these blocks.
metrics::Attribution attribute_blocks(const RecordedBlocks& blocks);

// Adds `weight` times a part to the sum.
void add_scaled(metrics::Attribution& sum, const metrics::Attribution& part, double weight);
metrics::Attribution scaled(const metrics::Attribution& part, double factor);

}  // namespace kvcast::simulate
