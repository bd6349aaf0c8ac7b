// Runs the program under test as users do, and captures its output.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace kvcast::tests {

struct Output {
  int code = -1;  // exit code; 128 + signal where one ended it
  std::string out, err;
};

// A temporary folder, removed by the destructor.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvcast-app-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// Starts kvcast in the source tree (configs are found there) with its output in files. `prepare` runs in the new
// process before that. Returns the process.
inline pid_t start(const std::vector<std::string>& arguments, const std::string& out, const std::string& err,
                   const std::function<void()>& prepare = {}) {
  const pid_t child = fork();
  if (child != 0) return child;
  // Replays for benchmark scores are shared by the tests and stay out of the user's own cache.
  setenv("XDG_CACHE_HOME", (std::filesystem::temp_directory_path() / "kvcast-tests-cache").c_str(), 0);
  if (chdir(KVCAST_SOURCE_DIR) != 0 || !std::freopen(out.c_str(), "w", stdout) ||
      !std::freopen(err.c_str(), "w", stderr)) {
    _exit(125);
  }
  std::vector<char*> argv = {const_cast<char*>(KVCAST_BINARY)};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  if (prepare) prepare();
  execv(KVCAST_BINARY, argv.data());
  _exit(126);
}

inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline Output kvcast(const std::vector<std::string>& arguments, const std::function<void()>& prepare = {}) {
  const Scratch scratch;
  Output result;
  result.code = wait_for(start(arguments, scratch / "out", scratch / "err", prepare));
  result.out = slurp(scratch / "out");
  result.err = slurp(scratch / "err");
  return result;
}

}  // namespace kvcast::tests
