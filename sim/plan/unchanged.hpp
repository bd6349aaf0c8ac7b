// Swept numbers of a machine that did not change any result, and the reason.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/rows.hpp"
#include "result/result.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

struct Unchanged {
  std::string key;     // "hardware.link.h2d_bandwidth"
  std::string policy;  // the policy whose experiments all stayed the same
  std::size_t experiments = 0;
  std::string reason;
};

// The parts of a result that unchanged_by() compares.
struct SweptPoint {
  result::Status status = result::Status::kOk;
  int policy = 0, setting = 0;             // texts: the name; with its swept parameters
  std::vector<std::pair<int, int>> swept;  // texts: keys and values
  std::vector<double> numbers;             // of short tables (Metric::brief); NaN where there is none
};
SweptPoint swept_point(const result::Result& result, Texts& texts);

// Compares experiments that differ only in one swept key under `hardware.`: if no number of a short table differs by
// more than 0.1 % between any of them, the key changed nothing for that policy. Failed experiments do not count. Loads
// one result, by its place in `points`, for each key and policy without effect.
std::vector<Unchanged> unchanged_by(std::span<const SweptPoint* const> points, const Texts& texts,
                                    const LoadResult& load);

// "hardware.link.h2d_bandwidth changed no time, memory or score of quest by more than 0.1 % (4 experiments): ...".
std::string text_of(const Unchanged& unchanged);
// Returns all of them as one conclusion of a sweep.
store::Finding finding_of(std::span<const Unchanged> unchanged);

}  // namespace kvcast::plan
