// A profile fitted stage by stage: what the fits of hosts and of GPUs share.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/machine.hpp"

namespace kvcast::calibrate {

// Which cases establish which numbers.
struct Stage {
  std::string_view name;
  std::vector<std::string_view> benches;
  std::vector<std::string_view> keys;
  // Where least squares over the keys are not enough: sets them itself.
  std::function<void(std::span<const MeasuredOp>, config::Hardware&)> fit = nullptr;
};

// Fits the stages one after the other, each with what the earlier ones found, marks the numbers as fitted, and adds a
// calibration for each. A stage without cases is left out.
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
