// From results of the measuring programs to a profile of the machine that they ran on.
#pragma once

#include <string>
#include <vector>

#include "calibrate/results.hpp"
#include "calibrate/stage.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {

struct MachineRequest {
  config::Hardware base;                     // what is not measured; where fits start
  std::string name;                          // of the results, as the profile names its points
  double budget_median = 0, budget_p90 = 0;  // of the held-out cases, for each stage, beyond their own noise
};

struct MachineResult {
  config::Hardware hardware;
  std::vector<config::Calibration> calibrations;  // one a stage
  std::vector<std::string> misses;                // stages that keep the numbers of the base, and why, in words
  std::vector<std::string> at_bounds;             // numbers at the end of what is possible, so that they say little
  std::vector<std::string> left_out;              // stages that stay as they were, for want of cases
  std::vector<std::string> too_few;               // those of them that have some, and how many they need
  std::string yaml;                               // the profile
};

// A file of configs/hosts: DRAM, rates of a core by contiguous bytes, derating, matrix products, fork and join, top-k,
// hash look-up, from kvcast-kernels-cpu. UserError where the results lack what a stage needs.
MachineResult fit_host(const Results& results, const MachineRequest& request);

// A file of configs/hardware: gaps, floors, efficiencies, attention, GEMM, top-k, host calls and copies, from
// kvcast-kernels.
MachineResult fit_gpu(const Results& results, const MachineRequest& request);

// The cases behind the stages, with the rule of what is held out applied.
std::vector<MeasuredOp> host_cases(const Results& results);
std::vector<MeasuredOp> gpu_cases(const Results& results);

// Of these, the ones of a stage, as config::Calibration::kernel names it; empty where there is no such stage.
std::vector<MeasuredOp> cases_of_stage(const Results& results, std::string_view stage);

}  // namespace kvcast::calibrate
