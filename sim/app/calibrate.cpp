// kvcast calibrate: profiles from measurements.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <set>

#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/program.hpp"
#include "base/whole_file.hpp"
#include "calibrate/machine.hpp"
#include "calibrate/read_back.hpp"
#include "calibrate/table.hpp"
#include "config/find.hpp"
#include "config/hardware.hpp"

namespace kvcast::app {
namespace {

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

void print(const config::Calibration& c) {
  const auto line = [](const char* name, const config::Calibration::Residuals& r) {
    const auto percent = [&](double x) { return r.n > 0 ? fmt::format("{:.1f} %", 100 * x) : std::string("-"); };
    fmt::print(stderr, "  {:<28} {:>5} points, error median {}, p90 {}\n", name, r.n, percent(r.median),
               percent(r.p90));
  };
  fmt::print(stderr, "{}: {}\n", c.kernel, c.points);
  line("fitted to", c.fit);
  line("held out", c.held_out);
  if (c.repeated) line("measured again, apart by", *c.repeated);
  if (c.beyond_cache) line("held out, beyond twice the L2", *c.beyond_cache);
}

// Writes the profile if any part of it was established. `check` throws if it cannot be read.
template <typename Check>
int finish(const std::vector<config::Calibration>& calibrations, bool established, const std::string& path,
           const std::string& yaml, const Check& check) {
  for (const config::Calibration& c : calibrations) print(c);
  if (!established) {
    fmt::print(stderr, "no profile is written; --budget-median and --budget-p90 allow more\n");
    return 1;
  }
  check(yaml);
  write_whole_file(path, yaml);
  fmt::print("{}\n", path);
  return 0;
}

// A file as a profile names it: a path, whatever folder it is in.
std::string as_path(const std::string& file) {
  return std::filesystem::path(file).has_parent_path() ? file : "./" + file;
}

struct CalibrateOptions {
  std::vector<std::string> files;
  std::string profile, source, out;
  double budget_median = 5, budget_p90 = 13;  // per cent
};

int fit_tables(const CalibrateOptions& options) {
  if (options.source.find_first_not_of(" \t\n") == std::string::npos) {
    throw UserError("calibrate table: --source is empty; it says where the points are from");
  }
  calibrate::TableRequest request;
  for (const std::string& file : options.files) request.files.push_back(as_path(file));
  refuse_repeated(request.files);
  const std::string profile = config::find_config("hardware", options.profile, {});
  refuse_overwritten(options.out, "-o", {{profile}});
  refuse_overwritten(options.out, "-o", request.files);
  request.base = config::read_hardware(profile);
  request.source = options.source, request.date = today();
  request.budget_median = options.budget_median / 100, request.budget_p90 = options.budget_p90 / 100;
  const calibrate::TableResult result = calibrate::fit_tables(request);
  for (const std::string& miss : result.misses) fmt::print(stderr, "refused: {}\n", miss);
  return finish(result.calibrations, result.misses.empty(), options.out, result.yaml,
                [&](const std::string& yaml) { calibrate::check_part(yaml, request.base); });
}

// Differences between `calibrate cpu` and `calibrate cuda`.
struct Target {
  const char* name;
  const char* program;
  const char* build;  // the command that builds it
  calibrate::MachineResult (*fit)(const calibrate::Results&, const calibrate::MachineRequest&);
  void (*check)(const std::string& yaml);  // throws if what was fitted cannot be read
  double budget_median, budget_p90;        // per cent
  std::vector<std::string> benches;        // benchmarks to run; empty: all
  // CalibrateOptions of the calls of a shortened measurement that still determines every number: a few cases of each
  // benchmark.
  std::vector<std::vector<std::string>> shorter;
};

struct MachineOptions {
  std::vector<std::string> from;
  std::string profile, host, out, program;
  int passes = 2;
  double seconds = 120, budget_median = 0, budget_p90 = 0;
  bool quick = false, own_kernels = false;
};

// Path of the results next to the profile, so that it can be fitted again.
std::string results_path(const MachineOptions& options) {
  return as_path(std::filesystem::path(options.out).replace_extension(".results.json").string());
}

std::vector<std::vector<std::string>> whole_calls(const Target& target, const MachineOptions& options) {
  std::vector<std::vector<std::string>> calls;
  for (int pass = 1; pass <= options.passes; ++pass) {
    const double seconds = options.seconds / options.passes;
    calls.push_back({"--budget", fmt::format("{}", seconds), "--pass", fmt::format("{}", pass)});
    for (const std::string& bench : target.benches) calls.back().insert(calls.back().end(), {"--bench", bench});
  }
  return calls;
}

std::string measure(const Target& target, const MachineOptions& options) {
  const std::optional<std::string> program = find_program(target.program, options.program);
  if (!program) {
    throw UserError(
        fmt::format("calibrate {}: there is no {} here. `{}` builds it; --from fits results that it wrote elsewhere",
                    target.name, options.program.empty() ? target.program : options.program, target.build));
  }
  const std::string path = results_path(options);
  std::filesystem::remove(path);  // an existing file would be continued, and might be of another machine
  std::vector<std::vector<std::string>> calls = options.quick ? target.shorter : whole_calls(target, options);
  for (std::vector<std::string>& call : calls) {
    call.insert(call.end(), {"--quiet", "--json", path});
    if (options.quick) call.insert(call.end(), {"--min-time", "0.02", "--timeout", "0.2"});
    const int code = run_program(*program, call);
    constexpr int kCasesLeft = 3;  // of the budget; each benchmark measures cases spread over its whole range
    if (code != 0 && code != kCasesLeft) {
      throw UserError(fmt::format("calibrate {}: {} ended with {}; no profile is made", target.name, *program, code));
    }
  }
  return path;
}

int fit_machine(const Target& target, const MachineOptions& options) {
  std::vector<std::string> paths, profiles = {config::find_config("hardware", options.profile, {})};
  if (!options.host.empty()) profiles.push_back(config::find_config("hosts", options.host, {}));
  for (const std::string& file : options.from) paths.push_back(as_path(file));
  refuse_repeated(paths);
  refuse_overwritten(options.out, "-o", profiles);
  refuse_overwritten(options.out, "-o", paths);
  calibrate::MachineRequest request;
  request.base = config::read_hardware(profiles.front());
  request.own_host = !options.host.empty();
  if (request.own_host) request.base.host = config::read_host(profiles.back());
  if (paths.empty()) {
    refuse_overwritten(results_path(options), "-o", profiles);
    paths.push_back(measure(target, options));
  }
  const calibrate::Results results = calibrate::read_results(paths);
  request.name = fmt::format("{}", fmt::join(paths, ", "));
  request.own_kernels = options.own_kernels;
  request.budget_median = (options.budget_median > 0 ? options.budget_median : target.budget_median) / 100;
  request.budget_p90 = (options.budget_p90 > 0 ? options.budget_p90 : target.budget_p90) / 100;
  const calibrate::MachineResult result = target.fit(results, request);
  if (const std::string unknown = calibrate::unknown_benches(results); !unknown.empty()) {
    fmt::print(stderr, "ignored, unknown benchmarks: {}\n", unknown);
  }
  for (const std::string& name : result.left_out) {
    fmt::print(stderr, "not measured, kept as in {}: {}\n", options.profile, name);
  }
  for (const std::string& why : result.too_few) fmt::print(stderr, "{}\n", why);
  for (const std::string& miss : result.misses) {
    fmt::print(stderr, "refused, kept as in {}: {}\n", options.profile, miss);
  }
  for (const std::string& why : result.bounds_below) {
    fmt::print(stderr, "only a lower bound on the speed, kept as in {}: {}\n", options.profile, why);
  }
  for (const std::string& key : std::set<std::string>(result.at_bounds.begin(), result.at_bounds.end())) {
    fmt::print(stderr, "at the end of its range, so that the cases hardly determine it: {}\n", key);
  }
  return finish(result.calibrations, !result.calibrations.empty(), options.out, result.yaml, target.check);
}

// `noise` says how the budgets take up the noise of the measurements.
void add_budgets(CLI::App& command, double& median, double& p90, double default_median, double default_p90,
                 const char* noise) {
  const auto add = [&](const char* option, double& value, const char* what, double initial) {
    const std::string help =
        fmt::format("largest {} error in per cent ({}) on held-out cases, or on the fitted ones if none are held out{}",
                    what, initial, noise);
    command.add_option(option, value, help)->check(CLI::Range(0.1, 1e9));
  };
  add("--budget-median", median, "median", default_median);
  add("--budget-p90", p90, "p90", default_p90);
}

void add_machine(CLI::App& calibrate, const Target& target, int& result) {
  CLI::App* command = calibrate.add_subcommand(target.name, fmt::format("measure with {} and fit", target.program));
  auto options = std::make_shared<MachineOptions>();
  options->profile = "h100-sxm";
  command->add_option("-o,--out", options->out, "the profile to write (YAML); results are written next to it")
      ->required();
  command->add_option("--from", options->from,
                      "fit these results of one machine (JSON, kvcast-kernels/1) instead of measuring");
  command->add_option("--profile", options->profile,
                      "profile of the numbers that are not measured, and of the initial values of fits (h100-sxm)");
  if (std::string_view(target.name) == "cuda") {
    command->add_option("--host", options->host,
                        "the host, as calibrate cpu wrote it (YAML), instead of the profile's");
    command->add_flag(
        "--own-kernels", options->own_kernels,
        "fit kvcast's own kernels of decode attention and top-k even where the profile or libraries have faster "
        "ones, for comparisons with kvcast-pipeline, which runs them");
  }
  command
      ->add_option("--seconds", options->seconds,
                   "seconds of measuring, divided among all cases (120; --short has its own)")
      ->check(CLI::Range(1.0, 1e6));
  command
      ->add_option("--passes", options->passes, "passes over all cases, whose differences are recorded (2; --short: 1)")
      ->check(CLI::Range(1, 100));
  command->add_flag("--short", options->quick, "measure only a few cases of each benchmark");
  command->add_option("--program", options->program, "path of the measuring program, if it is not next to kvcast");
  add_budgets(*command, options->budget_median, options->budget_p90, target.budget_median, target.budget_p90,
              "; the noise of the measured times is added: sqrt(budget^2 + noise^2)");
  command->callback([options, &target, &result] { result = fit_machine(target, *options); });
}

const Target& cpu() {
  static const Target target{
      .name = "cpu",
      .program = "kvcast-kernels-cpu",
      .build = "cmake --build build --target kvcast-kernels-cpu",
      .fit = calibrate::fit_host,
      .check = calibrate::check_host,
      .budget_median = 20,
      .budget_p90 = 40,
      .benches = {"cpu_dram", "cpu_gather_dot", "cpu_sparse_attention", "cpu_topk", "cpu_lsh_lookup", "cpu_fork_join",
                  "cpu_product"},
      .shorter = {
          {"--bench", "cpu_dram", "--axis", "op=read"},
          {"--bench", "cpu_gather_dot", "--axis", "dim=128", "--axis", "run=1,2,4,16,64", "--axis",
           "rows=16384,131072"},
          {"--bench", "cpu_sparse_attention", "--mode", "cold", "--axis", "items=4", "--axis", "context=4096", "--axis",
           "tokens=512", "--axis", "group=1,8"},
          {"--bench", "cpu_topk", "--axis", "n=1024,16384", "--axis", "k=64", "--axis", "rows=4"},
          {"--bench", "cpu_lsh_lookup", "--axis", "queries=8", "--axis", "context=16384", "--axis", "tables=75"},
          {"--bench", "cpu_fork_join", "--axis", "wait=spin"},
          {"--bench", "cpu_product", "--axis", "n=256"}}};
  return target;
}

const Target& cuda() {
  static const Target target{
      .name = "cuda",
      .program = "kvcast-kernels",
      .build = "cmake -S . -B build -DKVCAST_CUDA=ON && cmake --build build --target kvcast-kernels",
      .fit = calibrate::fit_gpu,
      .check = calibrate::check_profile,
      .budget_median = 8,
      .budget_p90 = 20,
      .benches = {},
      .shorter = {{"--budget", "60", "--axis", "page=32"}}};
  return target;
}

void add_table(CLI::App& calibrate, int& result) {
  CLI::App* command = calibrate.add_subcommand("table", "fit attention and GEMM parameters to tables of kernel times");
  auto options = std::make_shared<CalibrateOptions>();
  command->add_option("CSV", options->files, "points of one kernel on one device, as for validate kernels --points")
      ->required();
  command->add_option("--profile", options->profile, "the machine that the points are from")->required();
  command->add_option("--source", options->source, "source of the points")->required();
  add_budgets(*command, options->budget_median, options->budget_p90, options->budget_median, options->budget_p90, "");
  command->add_option("-o,--out", options->out, "the profile to write (YAML)")->required();
  command->callback([options, &result] { result = fit_tables(*options); });
}

}  // namespace

void add_calibrate(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("calibrate", "make a profile from measurements");
  command->require_subcommand(1);
  add_machine(*command, cpu(), result);
  add_machine(*command, cuda(), result);
  add_table(*command, result);
  add_calibrate_steps(*command, result);
}

}  // namespace kvcast::app
