// What this program was built from.
#pragma once

namespace kvcast {

// "0.1.0".
const char* version();
// The source tree; configs/, reports/ and traces/ are looked for there when the working directory has none.
const char* source_dir();

}  // namespace kvcast
