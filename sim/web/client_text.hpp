// Messages of errors as a client may read them: they quote its own text, and that of files that come with kvcast.
#pragma once

#include <string>

#include "base/error.hpp"

namespace kvcast::web {

// Returns the message of an error in a request or in a shipped file. Of an error in any other file, which may quote
// what is written there, returns only that the file cannot be used.
std::string client_text(const UserError& error);

}  // namespace kvcast::web
