// Joins the stores of the shards of one sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::store {

struct Merged {
  std::int64_t rows = 0;   // rows of all stores that were read
  std::int64_t added = 0;  // rows of them that the store `out` did not have
};

// Adds the shown rows and the replays of DIR/results.sqlite of each folder to OUT/results.sqlite, which may exist
// already and may be one of the folders. The order of the folders does not matter, and a second call changes nothing.
// Rows with one key may be in several stores if they are equal except for times of creation, times of the program and
// the timelines drawn. Throws UserError, before anything is written, if such rows differ (naming both stores), if the
// stores are not of one sweep by one version of kvcast, or if one cannot be read or has a damaged row; OutputError if
// OUT cannot be written.
Merged merge(const std::vector<std::string>& dirs, const std::string& out);

}  // namespace kvcast::store
