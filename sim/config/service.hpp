// The part of a run that serves requests: `traffic:` and `scheduler:`.
#pragma once

#include "config/run.hpp"
#include "config/section.hpp"

namespace kvcast::config {

// Reads both sections of a run whose other sections have been read. Throws UserError for keys that do not go together.
void read_service(Section& run_section, Run& run);

}  // namespace kvcast::config
