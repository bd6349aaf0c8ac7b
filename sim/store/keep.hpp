// Errors of a store while results are written to it.
#pragma once

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/failure.hpp"

namespace kvcast::store {

// Reads or writes a store in the middle of a command. An error there is not the fault of the current experiment, which
// a UserError would reject: a full disk ends the command, and `there` says what is in the store.
template <class Keep>
auto keep(const Keep& keep, const char* there = "Finished experiments are") {
  try {
    return keep();
  } catch (const UserError& why) {
    throw OutputError(fmt::format("{}\n{} in the store; the same command resumes", why.what(), there));
  }
}

}  // namespace kvcast::store
