// Fits a profile stage by stage; shared by the fits of hosts and of GPUs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/machine.hpp"

namespace kvcast::calibrate {

using Cases = std::span<const MeasuredOp>;

// One fit of a stage. `prior` contains the values near which numbers stay that the cases cannot identify. `redraw` is 0
// for the fit itself, and above 0 for refits to resampled cases and priors, whose spread shows how uncertain its
// numbers are.
struct Trial {
  const config::Hardware& prior;
  std::size_t redraw = 0;
};

// The cases that establish certain numbers.
struct Stage {
  std::string_view name;
  std::vector<std::string_view> benches;
  std::vector<std::string_view> keys;
  // Sets the nodes of a curve from the cases, if the stage has a curve.
  std::function<void(Cases, config::Hardware&)> place = nullptr;
  // Replaces least squares over the keys if these are not enough: sets the numbers itself, and returns the keys that
  // ended at a bound.
  std::function<std::vector<std::string>(Cases, const Trial&, config::Hardware&)> fit = nullptr;
  // Libraries have faster kernels of this class than kvcast's: where those were not measured, the cases bound the
  // machine's speed from below, and never replace numbers of a source that make it faster.
  bool libraries = false;
  // kvcast-pipeline runs kvcast's own kernels of this class, so that profiles for it are fitted to these
  // (MachineRequest::own_kernels).
  bool in_pipelines = false;
};

// Fits the stages one after the other, each with the results of the earlier ones, marks the numbers as fitted, and adds
// a calibration for each. A stage without cases is left out; one that misses its budget keeps its previous numbers, and
// so does one whose cases are only a lower bound of the speed. The uncertainty of a number is the error of the stage's
// cases, or the spread of fits to resampled cases if that is larger.
void fit_stages(std::span<const Stage> stages, std::span<const MeasuredOp> cases, const Results& results,
                const MachineRequest& request, MachineResult& result);

std::vector<Stage> host_stages();
std::vector<Stage> gpu_stages();

// The parts of a case that do not depend on its benchmark: id, bench, seconds, spread.
MeasuredOp measured(const MeasuredRow& row);

// The cases that belong to a stage.
std::vector<MeasuredOp> cases_of(const Stage& stage, std::span<const MeasuredOp> cases);

// Throws UserError if the results say that another program wrote them.
void check_program(const Results& results, const std::string& program);

// A text that a program reports about its machine; the fallback where it reports none.
std::string text_of(const Results& results, const char* key, const char* fallback);
double quantity_of(const Results& results, const char* key, double fallback);

}  // namespace kvcast::calibrate
