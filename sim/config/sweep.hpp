// The points of a sweep, made one by one, for sweeps too large to hold all points in memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "config/run.hpp"

namespace kvcast::config {

// A setting is a value at a dotted path; an alternative is a list of settings made together; an axis is a list of
// alternatives.
struct SweepSetting {
  std::string path;
  Node value;
};
using SweepAlternative = std::vector<SweepSetting>;
using SweepAxis = std::vector<SweepAlternative>;

// The most points of a sweep, and of one that a request states.
inline constexpr std::size_t kMostPoints = 1'000'000, kMostPointsOfRequest = 256;

// The grid of a config's `sweep:` (see expand_sweep, which lists all of its points). Stores only the axes.
class SweepGrid {
 public:
  // Throws UserError as expand_sweep() does, and Cancelled. Points are counted before any is made.
  explicit SweepGrid(const Node& config, const Cancel& cancel = {});

  std::size_t size() const { return size_; }
  // Returns point i < size(), computed anew by each call.
  SweepPoint point(std::size_t i) const;

 private:
  void refuse_duplicates(const SourceLocation& where, const Cancel& cancel) const;

  Node base_;
  std::vector<SweepAxis> axes_;
  std::size_t size_ = 1;
};

}  // namespace kvcast::config
