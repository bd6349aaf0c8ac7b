// Sensitivity of recorded times to the costs of each source, from one pass over the recorded schedule.
//
// Costs that rest on one source are off together, which is why two experiments can be compared: effects of a source
// that both rest on cancel.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/attribution.hpp"
#include "simulate/schedule.hpp"

namespace kvcast::simulate {

// Blocks of a recorded run whose time is meant. The recorder must have kept the block before them, too, if there is
// one: ops that it leaves running are part of the schedule.
struct RecordedBlocks {
  const engine::System* system = nullptr;
  const TimedSource* source = nullptr;
  const Recorder* recorder = nullptr;
  std::size_t first = 0, count = 1;
  double weight = 1;  // of their mean time among those of other runs
};

// How a time moves where the costs of one source are longer, and shorter, by their uncertainty.
struct TimeEffect {
  std::string source;              // as the profile writes it
  double longer = 1, shorter = 1;  // times as long
  // Where asked for: the attribution of the shifted time, a block's mean.
  std::optional<metrics::Attribution> longer_time, shorter_time;
  // A backlog of work was still growing under a shift: more warm-up steps would show where it ends.
  bool unsettled = false;
};

// Effects on the weighted mean time of a block, of the sources that could move it by this share; by source. The seconds
// that an op's cost may be off bound how much longer a schedule becomes by it, so that sources whose sum over all ops
// is less than the share are left out unseen.
std::vector<TimeEffect> time_effects(std::span<const RecordedBlocks> runs, double least_share, bool attributed);

// The machine's and the framework's numbers that have this source: "gpu.hbm_bandwidth", "framework.engine_step".
std::vector<std::string> keys_of(const config::Hardware& hardware, const config::Framework& framework,
                                 const std::string& source);

// Where the mean time of these blocks goes.
metrics::Attribution attribute_blocks(const RecordedBlocks& blocks);

// Adds `weight` times a part to the sum.
void add_scaled(metrics::Attribution& sum, const metrics::Attribution& part, double weight);

}  // namespace kvcast::simulate
