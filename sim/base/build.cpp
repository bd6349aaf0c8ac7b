#include "base/build.hpp"

namespace kvcast {

const char* version() { return KVCAST_VERSION; }
const char* source_dir() { return KVCAST_SOURCE_DIR; }

}  // namespace kvcast
