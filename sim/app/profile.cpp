// kvcast profile: measures on traces the prior knowledge of a model that some policies need: which heads retrieve, and
// which layers suffer from compression.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>

#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/whole_file.hpp"
#include "replay/profile.hpp"

namespace kvcast::app {
namespace {

struct ProfileOptions {
  std::vector<std::string> traces;
  std::string out, bases;
  std::int64_t kept = 32;
};

void check_outputs(const ProfileOptions& options) {
  refuse_overwritten(options.out, "-o", options.traces);
  refuse_overwritten(options.bases, "--bases", options.traces);
  refuse_same(options.bases, "--bases", options.out, "-o");
}

// Each trace is a data set: one that is given twice would count twice.
void refuse_repeated(const std::vector<std::string>& paths, const std::vector<const trace::Trace*>& traces) {
  std::map<std::string, std::string> seen;  // path by content
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const auto [at, fresh] = seen.try_emplace(traces[i]->identity(), paths[i]);
    if (fresh) continue;
    throw UserError({paths[i]}, at->second == paths[i]
                                    ? "the trace is given twice"
                                    : "the same trace as " + at->second + ", which would count twice");
  }
}

int run(const ProfileOptions& options) {
  check_outputs(options);
  std::vector<std::unique_ptr<trace::Trace>> traces;
  std::vector<const trace::Trace*> views;
  for (const std::string& path : options.traces) {
    traces.push_back(trace::open_trace(path));
    views.push_back(traces.back().get());
  }
  refuse_repeated(options.traces, views);
  WholeFile out(options.out);
  if (!options.bases.empty()) WholeFile(options.bases);  // shows that it can be written before time is spent
  out.stream() << policy::write_profile(replay::make_profile(views, options.kept, hardware_threads()));
  if (!options.bases.empty()) {
    const std::vector<std::string> kinds = replay::write_bases(views, options.bases, hardware_threads());
    fmt::print("{}: directions of {}\n", options.bases, fmt::join(kinds, ", "));
  }
  out.commit();
  fmt::print("{}: from {} trace{}\n", options.out, traces.size(), traces.size() == 1 ? "" : "s");
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("profile", "measure the head profile that some policies need on traces");
  auto options = std::make_shared<ProfileOptions>();
  command->add_option("--trace", options->traces, "traces with targets, each counted as one data set; may be repeated")
      ->required();
  command->add_option("-o,--out", options->out, "the profile to write (YAML)")->required();
  command->add_option("--bases", options->bases, "also write principal directions of keys and queries (safetensors)");
  command->add_option("--kept", options->kept, "tokens that a layer keeps in the runs that measure its error (32)")
      ->check(CLI::Range(9, 1000000));
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
