#include "app/program.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/error.hpp"

namespace kvcast::app {

namespace fs = std::filesystem;

std::optional<std::string> find_program(const std::string& name, const std::string& asked_for) {
  std::error_code failure;
  const fs::path path =
      asked_for.empty() ? fs::read_symlink("/proc/self/exe", failure).parent_path() / name : fs::path(asked_for);
  if (failure || !fs::is_regular_file(path, failure) || access(path.c_str(), X_OK) != 0) return {};
  return path.string();
}

std::string program_on_path(const std::string& name, const std::string& package) {
  const char* const folders = std::getenv("PATH");
  std::istringstream list(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    const auto found = folder.empty() ? std::nullopt : find_program(name, (fs::path(folder) / name).string());
    if (found) return *found;
  }
  throw UserError(
      fmt::format("this needs the program {0}, which is not installed; it is part of Debian's package {1} "
                  "(apt-get install {1})",
                  name, package));
}

int run_program(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  if (const int error = posix_spawn(&child, path.c_str(), nullptr, nullptr, argv.data(), environ); error != 0) {
    throw UserError({path, 0, 0}, std::string("cannot be started: ") + std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw UserError({path, 0, 0}, std::string("lost: ") + std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace kvcast::app
