// Joins the stores of the shards of one sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::store {

struct Merged {
  std::int64_t rows = 0;   // of all stores that were read
  std::int64_t added = 0;  // rows of them that the store `out` did not have
};

// Adds the shown rows and the replays of DIR/results.sqlite of each folder to OUT/results.sqlite, which may be there
// already and may be one of the folders. The order of the folders does not matter, and a second call changes nothing.
// Rows with one key may be in several stores when they are equal but for times of creation, times of the program and
// the timelines drawn. UserError, before anything is written, where such rows differ (naming both stores), where the
// stores are not of one sweep by one version of kvcast, or where one cannot be read or has a damaged row.
Merged merge(const std::vector<std::string>& dirs, const std::string& out);

}  // namespace kvcast::store
