// The handler only writes the signal's number to a pipe: everything else is done by a thread, in which any function may
// be called (the self-pipe trick, https://cr.yp.to/docs/selfpipe.html). Child processes inherit neither.
#include "app/interrupt.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/temporary.hpp"

namespace kvcast::app {

// Not in an unnamed namespace, since Stop names it as a friend.
void handle_signal(int signal);

namespace {

int written_end = -1;

struct Current {
  std::mutex mutex;
  Stop* stop = nullptr;
};

Current& current() {
  static Current one;
  return one;
}

extern "C" void note_signal(int signal) {
  const auto number = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(written_end, &number, 1);
}

[[noreturn]] void end_by(int signal) {
  remove_temporaries();
  std::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
  _exit(128 + signal);
}

// Reads signals for the rest of the program's life.
void read_signals(int in) {
  // Work that was requested to stop does so at once. What does not, such as a read from a disk that hangs, does not
  // keep the program alive; whoever does not want to wait asks twice.
  constexpr int kGraceMs = 10'000;
  int requested = 0;
  for (;;) {
    pollfd ready{in, POLLIN, 0};
    const int n = ::poll(&ready, 1, requested == 0 ? -1 : kGraceMs);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) end_by(requested);
    unsigned char signal = 0;
    if (n < 0 || ::read(in, &signal, 1) != 1) return;
    handle_signal(signal);
    requested = signal;
  }
}

}  // namespace

void handle_signal(int signal) {
  Current& now = current();
  const std::lock_guard lock(now.mutex);
  if (now.stop == nullptr || now.stop->signal_ != 0) end_by(signal);
  now.stop->signal_ = signal;
  fmt::print(stderr, "\nkvcast: stopping{}\n", now.stop->how_to_go_on_);
  now.stop->source_.request_stop();
}

void end_cleanly_on_signals() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;  // signals then end the program by default
  written_end = ends[1];
  current();  // made before any thread needs it
  try {
    std::thread(read_signals, ends[0]).detach();
  } catch (const std::system_error&) {
    return;
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is reported like a full disk
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    struct sigaction before = {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // `nohup`, a shell's background
  }
}

Stop::Stop(std::string how_to_go_on) : how_to_go_on_(std::move(how_to_go_on)) {
  const std::lock_guard lock(current().mutex);
  current().stop = this;
}

Stop::~Stop() {
  const std::lock_guard lock(current().mutex);
  current().stop = nullptr;
}

int Stop::code() const {
  const std::lock_guard lock(current().mutex);
  return signal_ == 0 ? 0 : 128 + signal_;
}

}  // namespace kvcast::app
