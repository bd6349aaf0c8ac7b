// The points of a sweep one by one, for sweeps whose points together do not fit in memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/run.hpp"

namespace kvcast::config {

// A value at a dotted path; settings that are made together; those that take turns.
struct SweepSetting {
  std::string path;
  Node value;
};
using SweepAlternative = std::vector<SweepSetting>;
using SweepAxis = std::vector<SweepAlternative>;

// The grid of a config's `sweep:` (see expand_sweep, which lists all of its points). Holds the axes alone.
class SweepGrid {
 public:
  // UserError as expand_sweep().
  explicit SweepGrid(const Node& config);

  std::size_t size() const { return size_; }
  // Point i < size(), made anew with each call.
  SweepPoint point(std::size_t i) const;

 private:
  void refuse_duplicates(const SourceLocation& where) const;

  Node base_;
  std::vector<SweepAxis> axes_;
  std::size_t size_ = 1;
};

}  // namespace kvcast::config
