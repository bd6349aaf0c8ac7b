#include "app/exit.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <new>
#include <system_error>

#include "base/error.hpp"
#include "base/failure.hpp"

namespace kvcast::app {
namespace {

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
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "kvcast: this machine has too little memory for that input\n");
    return kInputIsWrong;
  } catch (const std::exception& error) {
    const auto* const system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && std::ferror(stdout) != 0) return output_fails(system->code().value());  // thrown by fmt
    fmt::print(stderr, "kvcast: unexpected: {}\n", shortened(error.what()));
    return kAnythingElse;
  }
}

}  // namespace

int exit_code_of(const std::function<int()>& program) {
  const int code = guarded(program);
  errno = 0;
  const bool written = std::cout.flush().good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || code != 0) return code;
  return output_fails(errno);
}

}  // namespace kvcast::app
