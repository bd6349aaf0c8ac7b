// Makes a hardware profile from results of the measuring programs.
#pragma once

#include <string>
#include <vector>

#include "calibrate/results.hpp"
#include "calibrate/stage.hpp"
#include "config/hardware.hpp"

namespace kvcast::calibrate {

struct MachineRequest {
  config::Hardware base;  // numbers that are not measured; start of the fits
  bool own_host = false;  // the base's host is a profile of its own, whose title the fitted machine's host keeps
  std::string name;       // name of the results, as the profile names its points
  // limits for the held-out cases of each stage, in addition to their own noise
  double budget_median = 0, budget_p90 = 0;
  // Fits kvcast's own kernels where kvcast-pipeline runs them, even if libraries or the base have faster ones: for
  // predictions of its pipelines. Of all others they remain a lower bound on the speed.
  bool own_kernels = false;
};

struct MachineResult {
  config::Hardware hardware;
  std::vector<config::Calibration> calibrations;  // one per stage
  std::vector<std::string> misses;                // stages that keep the numbers of the base, with the reason
  std::vector<std::string> bounds_below;          // stages that keep faster numbers of the base, with the reason
  std::vector<std::string> at_bounds;             // numbers at the end of their possible range, which say little
  std::vector<std::string> left_out;              // stages left unchanged for lack of cases
  std::vector<std::string> too_few;               // those of them that have some cases, with the number that they need
  std::string yaml;                               // the profile
};

// Fits a file of configs/hosts: DRAM, rates of a core by contiguous bytes, derating, matrix products, fork and join,
// top-k, hash look-up, from kvcast-kernels-cpu. Throws UserError if the results lack what a stage needs.
MachineResult fit_host(const Results& results, const MachineRequest& request);

// Fits a file of configs/hardware: gaps, floors, efficiencies, attention, GEMM, top-k, host calls and copies, from
// kvcast-kernels.
MachineResult fit_gpu(const Results& results, const MachineRequest& request);

// Returns the cases of the stages, with held-out ones marked by the rule.
std::vector<MeasuredOp> host_cases(const Results& results);
std::vector<MeasuredOp> gpu_cases(const Results& results);

// Returns the seconds between two events of a stream that do not belong to the kernels between them, from the results'
// chains of empty kernels: part of the time of every kernel measured by itself. 0 without such rows.
double time_between_events(const Results& results);

// Returns the cases of one stage, as config::Calibration::kernel names it; empty if there is no such stage.
std::vector<MeasuredOp> cases_of_stage(const Results& results, std::string_view stage);

}  // namespace kvcast::calibrate
