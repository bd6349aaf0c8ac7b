// The only code that turns failures into exit codes: 0 done, 1 a check failed, 2 the user's input is wrong, 3 anything
// else.
#pragma once

#include <functional>

namespace kvcast::app {

inline constexpr int kInputIsWrong = 2;
inline constexpr int kAnythingElse = 3;

// Call before anything opens a file. A standard stream that is closed is opened on /dev/null, so that no file takes its
// number and with it what is printed; standard output still fails. Messages that standard error does not take, because
// it is closed or its disk is full, are lost and end nothing: fmt::print would throw, in any thread.
void prepare_standard_streams();

// Runs the program, flushes standard output, and reports on stderr why either failed.
int exit_code_of(const std::function<int()>& program);

}  // namespace kvcast::app
