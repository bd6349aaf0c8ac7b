// Suite `kernels`: does the cost model predict how long single kernels take?
#pragma once

#include <string>
#include <vector>

#include "validate/suite.hpp"

namespace kvcast::validate {

// Compares the points held out of the fits of the profiles under configs/hardware with the profile of their device and
// framework; budgets are those that the profiles state, which may count only points beyond twice the L2.
Suite kernels_of_profiles();

// Compares points that the user measured with the profiles of their device and framework. `detail` contains, over all
// points and under by_source per device/framework: n, median, p90, max, bias and in_interval (fractions; null if n is
// 0), the same errors of the baseline, and the counts outside_range, no_fit and no_profile; `points` is the file.
// Throws UserError as read_points does.
Suite kernels_of_points(const std::string& path);

// "device/framework" of every profile that names one, sorted.
std::vector<std::string> known_sources();

}  // namespace kvcast::validate
