// The executable `kvcast`: its command line.
#include <malloc.h>

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdio>
#include <string_view>
#include <vector>

#include "app/commands.hpp"
#include "app/exit.hpp"
#include "app/interrupt.hpp"
#include "base/build.hpp"
#include "base/error.hpp"
#include "base/failure.hpp"

namespace {

// Replays allocate and free megabytes thousands of times. Kept in one heap they are reused at once; returned to the
// system each page would be cleared again, which takes an eighth of a long context's replay.
void keep_freed_memory() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest allowed value
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

// Returns the word in the position of a command that is not a command; empty if there is none or none is needed.
std::string unknown_command(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  const bool misplaced = app.get_require_subcommand_min() > 0 && app.get_subcommands().empty() && !rest.empty();
  return misplaced && rest[0][0] != '-' ? rest[0] : "";
}

std::string failure(const CLI::App* failed, const CLI::Error& error) {
  std::string path;
  while (!failed->get_subcommands().empty()) {
    failed = failed->get_subcommands().front();
    path += " " + failed->get_name();
  }
  const std::string command = unknown_command(*failed);
  std::string what = error.what();
  if (!command.empty()) {
    std::vector<std::string> known;
    for (const CLI::App* one : failed->get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(one->get_name());
    what = fmt::format("unknown command \"{}\"; known: {}", command, fmt::join(known, ", "));
  }
  return fmt::format("kvcast: {}\nTry: kvcast{} --help\n", kvcast::shortened(what), path);
}

int run(int argc, char** argv) {
  CLI::App app{
      "kvcast predicts what KV-cache compression and retrieval does to a long-context LLM: tokens per second,\nmemory "
      "and accuracy, on hardware that you have or consider buying.\nStart with: kvcast run "
      "configs/runs/quickstart.yaml",
      "kvcast"};
  app.set_version_flag("--version", kvcast::version());
  app.require_subcommand(1);
  app.failure_message(failure);
  int result = 0;
  kvcast::app::add_commands(app, result);
  // `kvcast help run` is the same as `kvcast run --help`.
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // prints help (0) or the failure
    return code == 0 ? 0 : kvcast::app::kInputIsWrong;
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  kvcast::app::end_cleanly_on_signals();
  return kvcast::app::exit_code_of([argc, argv] { return run(argc, argv); });
}
