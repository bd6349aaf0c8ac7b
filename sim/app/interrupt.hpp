// SIGINT (Ctrl-C) and SIGTERM: commands clean up and say how to resume.
#pragma once

#include <stop_token>
#include <string>

#include "base/cancel.hpp"

namespace kvcast::app {

// After this call SIGINT and SIGTERM remove the temporary files and end the program by that signal, so that a shell
// sees 130 or 143, unless a Stop is alive. Called once, by main.
void end_cleanly_on_signals();

// While a Stop is alive, the first signal requests a stop. A second one, and the end of nine tenths of a second, end
// the program as above, whatever it does. At most one at a time.
class Stop {
 public:
  // how_to_go_on: follows "kvcast: stopping" and tells the user how to resume: ". The same command resumes."
  explicit Stop(std::string how_to_go_on);
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  Cancel cancel() const { return source_.get_token(); }
  // 128 + the signal; 0 if there was none.
  int code() const;

 private:
  friend void handle_signal(int signal);
  std::string how_to_go_on_;
  std::stop_source source_;
  int signal_ = 0;
};

}  // namespace kvcast::app
