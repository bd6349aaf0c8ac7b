// The only code that turns failures into exit codes: 0 done, 1 a check failed, 2 the user's input is wrong, 3 anything
// else.
#pragma once

#include <functional>

namespace kvcast::app {

inline constexpr int kInputIsWrong = 2;
inline constexpr int kAnythingElse = 3;

// Runs the program, flushes standard output, and reports on stderr why either failed.
int exit_code_of(const std::function<int()>& program);

}  // namespace kvcast::app
