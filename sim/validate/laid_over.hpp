// Keys of a run over those of its defaults.
#pragma once

#include "config/yaml.hpp"

namespace kvcast::validate {

// Merges `over` into `base`, maps key by key; but a policy replaces the one in `base`, which has other parameters.
config::Node laid_over(const config::Node& base, const config::Node& over);

}  // namespace kvcast::validate
