// Suite `kernels`: does the cost model foretell how long single kernels take?
#pragma once

#include <string>

#include "validate/suite.hpp"

namespace kvcast::validate {

// The points that the fits of the profiles under configs/hardware have not seen, each against the profile of its device
// and framework; budgets are those that the profiles set themselves, for points beyond twice the L2.
Suite kernels_of_profiles();

// Points that the user measured, held against the profiles of their device and framework. `detail` holds, over all and
// under by_source per device/framework: n, median, p90, max, bias (fractions; null where n is 0), outside_range,
// no_profile; and `points`, the file. UserError as read_points.
Suite kernels_of_points(const std::string& path);

}  // namespace kvcast::validate
