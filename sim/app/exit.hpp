// The one place that turns failures into exit codes: 0 done, 1 a check failed, 2 the user's input is wrong, 3 anything
// else.
#pragma once

#include <functional>

namespace kvcast::app {

inline constexpr int kInputIsWrong = 2;
inline constexpr int kAnythingElse = 3;

// Runs the program, writes out standard output, and says on stderr why either failed.
int exit_code_of(const std::function<int()>& program);

}  // namespace kvcast::app
