// SIGINT (Ctrl-C) and SIGTERM: commands clean up and say how to resume.
#pragma once

#include <stop_token>
#include <string>

namespace kvcast::app {

// After this call SIGINT and SIGTERM remove the temporary files and end the program by that signal, so that a shell
// sees 130 or 143, unless a Stop is alive. Called once, by main.
void end_cleanly_on_signals();

// While a Stop is alive, the first signal requests a stop and announces what happens next; a second one ends the
// program as above. At most one at a time.
class Stop {
 public:
  // how_to_go_on: a sentence that tells the user how to resume.
  explicit Stop(std::string how_to_go_on);
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  // 128 + the signal; 0 if there was none.
  int code() const;

 private:
  friend void handle_signal(int signal);
  std::string how_to_go_on_;
  std::stop_source source_;
  int signal_ = 0;
};

}  // namespace kvcast::app
