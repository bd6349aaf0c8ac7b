// Windows of decode steps, timed on a machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/cancel.hpp"
#include "base/units.hpp"
#include "simulate/effects.hpp"
#include "simulate/lowered.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {

// Number of steps at the end of a window whose time is attributed op by op.
inline constexpr std::size_t kAttributedSteps = 3;

// A stream timed on the machine, and the record of its run.
struct TimedRun {
  TimedSource source;
  Recorder recorder;
  TimedRun(const lower::FlatStream& stream, CostTable& costs, std::size_t detailed_from, std::span<const double> scales,
           const Cancel& cancel)
      : source(stream, costs, scales, stream.blocks.size(), cancel), recorder(source, detailed_from) {}
};

// Seconds of a window's measured steps.
inline std::vector<double> step_seconds(const DecodeSteps& steps, const Recorder& recorder) {
  std::vector<double> seconds;
  for (std::size_t s = steps.warmup; s < steps.stream.blocks.size(); ++s) {
    seconds.push_back(to_seconds(recorder.block_ends()[s] - recorder.start_of(s)));
  }
  return seconds;
}

// The run of a window. It records the last steps and the one before them, whose ops may still be running.
struct Window {
  const DecodeSteps* steps = nullptr;
  std::size_t attributed = 0;  // steps
  TimedRun run;
  Window(const DecodeSteps& of, CostTable& costs, std::span<const double> scales, const Cancel& cancel)
      : steps(&of),
        attributed(std::min(kAttributedSteps, of.measured())),
        run(of.stream, costs, before(of.stream.blocks.size() - attributed), scales, cancel) {}

  RecordedBlocks recorded(const engine::System& system) const {
    return {&system, &run.source, &run.recorder, steps->stream.blocks.size() - attributed, attributed, steps->weight};
  }
  std::vector<double> seconds() const { return step_seconds(*steps, run.recorder); }
  // Mean over the last `last` measured steps.
  graph::ByteCounts traffic(std::size_t last) const {
    graph::ByteCounts sum;
    const auto& blocks = steps->stream.blocks;
    for (std::size_t s = blocks.size() - last; s < blocks.size(); ++s) sum += blocks[s].traffic;
    return sum.scaled(1.0 / static_cast<double>(last));
  }

 private:
  static std::size_t before(std::size_t block) { return block == 0 ? 0 : block - 1; }
};

}  // namespace kvcast::simulate
