// The message of the UserError that a call throws, or "no error".
#pragma once

#include <string>

#include "base/error.hpp"

namespace kvcast {

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace kvcast
