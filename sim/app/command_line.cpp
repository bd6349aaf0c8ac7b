#include "app/command_line.hpp"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands.hpp"
#include "app/exit.hpp"
#include "base/build.hpp"
#include "base/error.hpp"
#include "base/failure.hpp"
#include "config/text.hpp"

namespace kvcast::app {
namespace {

// Returns the word in the position of a command that is not a command; empty if there is none or none is needed.
std::string unknown_command(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  const bool misplaced = app.get_require_subcommand_min() > 0 && app.get_subcommands().empty() && !rest.empty();
  return misplaced && rest[0][0] != '-' ? rest[0] : "";
}

// Returns the first word that looks like an option and is none; empty if there is none.
std::string unknown_option(const CLI::App& app) {
  for (const std::string& word : app.remaining()) {
    if (word.starts_with("--") && word.size() > 2) return word.substr(0, word.find('='));
  }
  return "";
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
    what = fmt::format("unknown command \"{}\"{}; known: {}", command, config::did_you_mean(command, known),
                       fmt::join(known, ", "));
  } else if (const std::string option = unknown_option(*failed); !option.empty()) {
    std::vector<std::string> known;
    for (const CLI::Option* one : failed->get_options()) {
      for (const std::string& name : one->get_lnames()) known.push_back("--" + name);
    }
    what = fmt::format("unknown option \"{}\"{}; known: {}", option, config::did_you_mean(option, known),
                       fmt::join(known, ", "));
  }
  return fmt::format("kvcast: {}\nTry: kvcast{} --help\n", shortened(what), path);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app{
      "kvcast predicts how KV-cache compression and retrieval change the tokens per second, memory and accuracy\nof a "
      "long-context LLM, on hardware that you have or consider buying.\nStart with: kvcast run "
      "configs/runs/quickstart.yaml",
      "kvcast"};
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.failure_message(failure);
  int result = 0;
  for (auto* const add : {add_run,        add_sweep,    add_merge, add_plan,     add_serve,     add_report,
                          add_replay,     add_simulate, add_trace, add_policies, add_hardware,  add_models,
                          add_frameworks, add_metrics,  add_keys,  add_explain,  add_calibrate, add_init,
                          add_validate,   add_profile,  add_fit,   add_schema,   add_completion}) {
    add(app, result);
  }
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
    return code == 0 ? 0 : kInputIsWrong;
  }
  return result;
}

}  // namespace kvcast::app
