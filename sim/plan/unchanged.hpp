// Swept numbers of a machine that changed no result, and the reason.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "result/result.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

struct Unchanged {
  std::string key;     // "hardware.link.h2d_bandwidth"
  std::string policy;  // whose experiments all stayed as they were
  std::size_t experiments = 0;
  std::string reason;
};

// Compares experiments that differ in one swept key under `hardware.` alone: where no number of a short table
// (Metric::brief) differs by more than 0.1 % between any of them, the key changed nothing for that policy. Failed
// experiments do not count.
std::vector<Unchanged> unchanged_by(std::span<const result::Result> results);

// "hardware.link.h2d_bandwidth changed no time, memory or score of quest by more than 0.1 % (4 experiments): ...".
std::string text_of(const Unchanged& unchanged);
// All of them as one conclusion of a sweep.
store::Finding finding_of(std::span<const Unchanged> unchanged);

}  // namespace kvcast::plan
