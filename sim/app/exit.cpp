#include "app/exit.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <new>
#include <system_error>

#include "base/error.hpp"
#include "base/failure.hpp"

namespace kvcast::app {
namespace {

ssize_t write_or_lose(void* /*cookie*/, const char* text, std::size_t size) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, size);
  return static_cast<ssize_t>(size);
}

int output_fails(int error) {
  fmt::print(stderr, "kvcast: standard output {}\n", cannot_be_written(error));
  return kAnythingElse;
}

int guarded(const std::function<int()>& program) {
  try {
    return program();
  } catch (const UserError& error) {
    fmt::print(stderr, "kvcast: {}\n", error.what());
    return kInputIsWrong;
  } catch (const OutputError& error) {
    fmt::print(stderr, "kvcast: {}\n", shortened(error.what()));
    return kAnythingElse;
  } catch (const NoMemory& error) {
    fmt::print(stderr, "kvcast: {}\n", error.what());
    return kInputIsWrong;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "kvcast: too little memory for that input\n");
    return kInputIsWrong;
  } catch (const std::exception& error) {
    const auto* const system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && std::ferror(stdout) != 0) return output_fails(system->code().value());  // thrown by fmt
    fmt::print(stderr, "kvcast: unexpected: {}\n", shortened(error.what()));
    return kAnythingElse;
  }
}

}  // namespace

void prepare_standard_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest free number is the one that is closed. Writing to what is open for reading fails.
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", number == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
  std::FILE* const losing =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = write_or_lose, .seek = nullptr, .close = nullptr});
  if (losing == nullptr) return;
  std::setvbuf(losing, nullptr, _IONBF, 0);
  stderr = losing;
}

int exit_code_of(const std::function<int()>& program) {
  const int code = guarded(program);
  errno = 0;
  const bool written = std::cout.flush().good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || code != 0) return code;
  return output_fails(errno);
}

}  // namespace kvcast::app
