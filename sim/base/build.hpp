// Facts about this program and the place of its data.
#pragma once

#include <string>

namespace kvcast {

// "0.1.0".
const char* version();
// The folder with configs/, reports/ and traces/, which are looked for there when the working directory has none: the
// environment variable KVCAST_DATA, else what is found from the program's own place.
const std::string& data_dir();

}  // namespace kvcast
