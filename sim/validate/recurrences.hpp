// Suite `recurrences`: are the kernels of layers with a recurrence predicted?
//
// configs/validation/recurrences/MACHINE.csv has a measured kernel a row; the work of its layer is lowered for the
// row's framework and priced by the machine's profile.
#pragma once

#include <string>

#include "validate/suite.hpp"

namespace kvcast::validate {

// All files of a folder, each for the machine of its name. Throws UserError for rows that cannot be read.
Suite recurrences_suite(const std::string& folder);

}  // namespace kvcast::validate
