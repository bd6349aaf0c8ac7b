// Swept numbers of a machine that did not change any result, and the reason.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "result/result.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

struct Unchanged {
  std::string key;     // "hardware.link.h2d_bandwidth"
  std::string policy;  // the policy whose experiments all stayed the same
  std::size_t experiments = 0;
  std::string reason;
};

// Compares experiments that differ only in one swept key under `hardware.`: if no number of a short table
// (Metric::brief) differs by more than 0.1 % between any of them, the key changed nothing for that policy. Failed
// experiments do not count.
std::vector<Unchanged> unchanged_by(std::span<const result::Result> results);

// "hardware.link.h2d_bandwidth changed no time, memory or score of quest by more than 0.1 % (4 experiments): ...".
std::string text_of(const Unchanged& unchanged);
// Returns all of them as one conclusion of a sweep.
store::Finding finding_of(std::span<const Unchanged> unchanged);

}  // namespace kvcast::plan
