// Failures that the user's input does not cause, and the limit on the length of messages.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace kvcast {

// Results could not be stored: a full disk, or a lock that is not released. Not a property of the input or of an
// experiment.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An invariant that no input should violate is broken: a defect of kvcast. Programs end with it; who loads kvcast as a
// library can go on.
class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Memory that the system did not grant: "too little memory: 1.2 GB for the keys of a layer".
class NoMemory : public std::bad_alloc {
 public:
  NoMemory(std::size_t bytes, const std::string& wanted_for);
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // copying an exception must not throw
};

// "cannot be written: No space left on device", of an errno; without a reason if it is 0.
std::string cannot_be_written(int error);

// Shortens a message to at most kLongestMessage bytes by cutting out its middle.
inline constexpr std::size_t kLongestMessage = 1900;
std::string shortened(const std::string& text);

}  // namespace kvcast
