// Version of this program and the location of its data files.
#pragma once

#include <string>

namespace kvcast {

// "0.1.0".
const char* version();
// The folder that contains configs/, reports/ and traces/, used for files that the working directory lacks: the
// environment variable KVCAST_DATA, otherwise the folder found relative to the executable. Throws UserError if the
// variable names another folder, or if there is none.
const std::string& data_dir();

}  // namespace kvcast
