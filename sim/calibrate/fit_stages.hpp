// A profile fitted stage by stage: what the fits of hosts and of GPUs share.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/machine.hpp"

namespace kvcast::calibrate {

using Cases = std::span<const MeasuredOp>;

// One fit of a stage. `prior` holds the values near which numbers stay that the cases cannot identify. `redraw` is 0
// for the fit itself, and above 0 for refits to resampled cases and priors, whose spread shows how uncertain its
// numbers are.
struct Trial {
  const config::Hardware& prior;
  std::size_t redraw = 0;
};

// Which cases establish which numbers.
struct Stage {
  std::string_view name;
  std::vector<std::string_view> benches;
  std::vector<std::string_view> keys;
  // Sets the nodes of a curve from the cases, where the stage has a curve.
  std::function<void(Cases, config::Hardware&)> place = nullptr;
  // Where least squares over the keys are not enough: sets them itself, and returns those that ended at a bound.
  std::function<std::vector<std::string>(Cases, const Trial&, config::Hardware&)> fit = nullptr;
};

// Fits the stages one after the other, each with what the earlier ones found, marks the numbers as fitted, and adds a
// calibration for each. A stage without cases is left out; one that misses its budget keeps the numbers that it had.
// How far a number could be off is what the stage's cases are off by, or what fits to cases drawn anew differ by, where
// that is more.
void fit_stages(std::span<const Stage> stages, std::span<const MeasuredOp> cases, const Results& results,
                const MachineRequest& request, MachineResult& result);

std::vector<Stage> host_stages();
std::vector<Stage> gpu_stages();

// What a row says of a case whatever it stands for: id, bench, seconds, spread.
MeasuredOp measured(const Row& row);

// The cases that belong to a stage.
std::vector<MeasuredOp> cases_of(const Stage& stage, std::span<const MeasuredOp> cases);

// What a program says about the machine that it ran on, without what YAML would trip over.
std::string text_of(const Results& results, const char* key, const char* fallback);
double quantity_of(const Results& results, const char* key, double fallback);

}  // namespace kvcast::calibrate
