// Failures that are not of the user's input, and the length of messages.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace kvcast {

// Results could not be kept: a full disk, a lock that is not released. No property of the input or of an experiment.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A message of at most kLongestMessage bytes: what is too long lacks its middle.
inline constexpr std::size_t kLongestMessage = 1900;
std::string shortened(const std::string& text);

}  // namespace kvcast
