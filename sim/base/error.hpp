// Two kinds of failure: the user's input is wrong (UserError, exit code 2), or kvcast is (a broken invariant, code 3).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace kvcast {

// A location in the user's input. Lines and columns count from 1; 0 means unknown.
struct SourceLocation {
  std::string file;
  int line = 0;
  int column = 0;
  bool from_request = false;  // of a client's text: it may name listed files only, and states smaller sweeps
};

// An error that the user can correct. what() reads "file:line:col: what; known: a, b, c".
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& what) : std::runtime_error(what) {}
  UserError(const SourceLocation& where, const std::string& what, const std::vector<std::string>& known = {});

  bool located() const { return !where_.file.empty() || where_.line > 0; }
  const SourceLocation& where() const { return where_; }

 private:
  SourceLocation where_;
};

// "file:line:col: " with the unknown parts left out.
std::string format_location(const SourceLocation& where);

// Calls the function and adds the location to a UserError that has none: for checks of values that are passed on
// without their location in the input.
template <class Function>
auto at_location(const SourceLocation& where, Function&& function) {
  try {
    return function();
  } catch (const UserError& error) {
    if (error.located()) throw;
    throw UserError(where, error.what());
  }
}

[[noreturn]] void invariant_broken(const char* expression, const char* file, int line);

}  // namespace kvcast

// Checks an invariant that no input can violate. Stays on in release builds.
#define KVCAST_CHECK(expression) \
  (static_cast<bool>(expression) ? void(0) : ::kvcast::invariant_broken(#expression, __FILE__, __LINE__))
