// kvcast validate [SUITE]...: predictions compared with measured or published values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "accuracy/ablation.hpp"
#include "accuracy/evaluate.hpp"
#include "app/commands.hpp"
#include "app/left_out_rows.hpp"
#include "app/progress.hpp"
#include "app/settings.hpp"
#include "base/build.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/units.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "score/table.hpp"
#include "score/task_score.hpp"
#include "study/study.hpp"
#include "validate/accuracy.hpp"
#include "validate/cpu_pipeline.hpp"
#include "validate/evidence.hpp"
#include "validate/gpu_pipeline.hpp"
#include "validate/gpu_prompts.hpp"
#include "validate/kernels.hpp"
#include "validate/papers.hpp"
#include "validate/policy_kernels.hpp"
#include "validate/recurrences.hpp"
#include "validate/serving.hpp"
#include "validate/suite.hpp"
#include "validate/times.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;
using validate::Suite;

struct ValidateOptions {
  std::vector<std::string> suites;
  std::string points, claims, published, replays, ablation, from, profile, intervals, first, out;
  int seeds = 2;
  bool as_json = false, without_evidence = false;
};

// One line per suite. Suites that measure run only when they are named.
struct SuiteEntry {
  const char* name;
  bool measures;
  std::function<Suite(const ValidateOptions&)> run;
};

// Returns whether to answer about a user's own file, in the form that the command's interface promises.
bool answers_a_file(const ValidateOptions& options) { return !options.points.empty() || !options.published.empty(); }

Suite kernels(const ValidateOptions& options) {
  return options.points.empty() ? validate::kernels_of_profiles() : validate::kernels_of_points(options.points);
}

// A folder of configs/validation in the working directory, else in the source tree.
std::string folder_of(const std::string& name) {
  const std::string folder = "configs/validation/" + name;
  return std::filesystem::is_directory(folder) ? folder : data_dir() + "/" + folder;
}

// No fit has seen a user's table, unless its column `held_out` says so of some rows.
void hold_out(std::vector<score::PublishedRow>& rows, const std::string& path) {
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::absolute(path, failure).parent_path();
  if (std::filesystem::equivalent(folder, folder_of("accuracy"), failure)) return;
  if (std::ranges::any_of(rows, [](const score::PublishedRow& row) { return row.held_out; })) return;
  for (score::PublishedRow& row : rows) row.held_out = true;
}

// The folder that --claims names, else the project's.
std::string claims_of(const ValidateOptions& options, const std::string& name) {
  return options.claims.empty() ? folder_of(name) : options.claims;
}

Suite accuracy_suite(const ValidateOptions& options) {
  validate::Ablations ablations;
  if (!options.ablation.empty()) {
    ablations = accuracy::choose_ablations(accuracy::read_ablations(config::find_config("accuracy", "ablations", {})),
                                           options.ablation);
  }
  accuracy::EvaluateOptions evaluate;
  evaluate.plan.seeds = options.seeds;
  evaluate.cache = options.replays;
  evaluate.threads = hardware_threads();
  evaluate.advance = progress_of("Replaying");
  const score::ScoreModel model;
  if (options.published.empty()) return validate::accuracy_of_own_tables(evaluate, ablations, model.evidence());
  const bool simulated_alone = options.without_evidence || !ablations.empty();
  std::vector<score::LeftOutRow> left_out;
  std::vector<score::PublishedRow> rows = score::read_table(options.published, &left_out);
  print_left_out(left_out);
  hold_out(rows, options.published);
  Suite suite = validate::accuracy_of_table(rows, evaluate, ablations, simulated_alone ? nullptr : &model.evidence());
  suite.detail["no_score"] = left_out.size();
  return suite;
}

std::vector<result::Result> run_points(std::vector<study::Point> points) {
  Progress progress("experiments", static_cast<std::int64_t>(points.size()), 0);
  study::StudyOptions study;
  study.threads = hardware_threads();
  return study::run_all(std::move(points), study,
                        [&progress](const study::Task& task) { progress.advance(1, task.prepared.run.policy.name); });
}

Suite times(const ValidateOptions& options) {
  std::vector<validate::Paper> all = validate::prompt_times();
  for (const char* const part : {"times", "papers"})
    for (validate::Paper& paper : validate::read_papers(folder_of(part))) all.push_back(std::move(paper));
  Suite suite = validate::times(all, folder_of("times") + "/kernels.csv", run_points);
  if (!options.intervals.empty())
    write_whole_file(options.intervals, validate::intervals_text(validate::widenings(suite)));
  return suite;
}

// Points that cannot be run are results as well.
std::vector<result::Result> run_each(std::vector<study::Point> points) {
  Progress progress("experiments", static_cast<std::int64_t>(points.size()), 0);
  std::vector<result::Result> results(points.size());
  std::vector<study::Point> kept;
  std::vector<std::size_t> at;
  study::Preparer preparer;
  for (std::size_t i = 0; i < points.size(); ++i) {
    try {
      preparer.prepare(points[i].config);
      kept.push_back(std::move(points[i])), at.push_back(i);
    } catch (const UserError& error) {
      results[i].status = result::Status::kFailed, results[i].error = error.what();
    }
  }
  study::StudyOptions study;
  study.threads = hardware_threads();
  std::mutex mutex;
  study::run(study::Study(std::move(kept), at, preparer), study, [&](const study::Task& task, result::Result&& result) {
    const std::lock_guard lock(mutex);
    results[task.index] = std::move(result);
    progress.advance(1, task.prepared.run.model.name);
  });
  return results;
}

Suite serving(const ValidateOptions& options) {
  const std::string folder = claims_of(options, "serving");
  const std::string first = folder + "/first_errors.csv";
  const bool compares = std::filesystem::exists(first);
  Suite suite =
      validate::serving_suite(validate::serve_points(validate::read_all_load_points(folder), run_each),
                              compares ? validate::read_first_predictions(first) : validate::FirstPredictions{});
  if (!options.first.empty()) write_whole_file(options.first, validate::first_predictions_text(suite));
  return suite;
}
validate::Measured measured(const ValidateOptions& options) { return {options.from, options.profile}; }

const std::vector<SuiteEntry>& entries() {
  static const std::vector<SuiteEntry> all = {
      {"kernels", false, kernels},
      {"papers", false,
       [](auto& o) { return validate::papers(validate::read_papers(claims_of(o, "papers")), run_points); }},
      {"times", true, times},
      {"serving", true, serving},
      {"recurrences", false, [](auto& o) { return validate::recurrences_suite(claims_of(o, "recurrences")); }},
      {"accuracy", true, accuracy_suite},
      {"evidence", true,
       [](auto&) {
         return validate::evidence_suite(
             evidence::read_records(
                 config::find_file("accuracy/evidence.csv").value_or("configs/accuracy/evidence.csv")),
             evidence::read_parameters(config::find_config("accuracy", "evidence", {})).components);
       }},
      {"cpu_pipeline", true, [](auto& o) { return validate::cpu_pipeline(o.from); }},
      {"gpu_pipeline", false,
       [](auto& o) {
         if (!o.first.empty()) write_whole_file(o.first, validate::gpu_predictions(measured(o)));
         return validate::gpu_pipeline(measured(o));
       }},
      {"gpu_prompts", true, [](auto& o) { return validate::gpu_prompts(measured(o), run_points); }},
      {"policy_kernels", false, [](auto& o) { return validate::policy_kernels(measured(o)); }}};
  return all;
}

std::vector<const SuiteEntry*> chosen(const std::vector<std::string>& names) {
  std::vector<const SuiteEntry*> out;
  std::vector<std::string> known;
  for (const SuiteEntry& entry : entries()) {
    known.emplace_back(entry.name);
    if (names.empty() && !entry.measures) out.push_back(&entry);
  }
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) throw UserError({}, fmt::format("unknown suite \"{}\"", name), known);
    out.push_back(&entries()[static_cast<std::size_t>(found - known.begin())]);
  }
  return out;
}

// Prints the table of `kernels --points`: a line per device and framework, because a line per point would be too long.
void print_points(const json& result) {
  fmt::print("{:<28} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}\n", "device/framework", "points", "median", "p90",
             "max", "bias", "outside", "no profile");
  const auto line = [](const std::string& name, const json& r) {
    const auto percent = [&r](const char* key) {
      return r[key].is_null() ? "-" : fmt::format("{:.1f} %", 100 * r[key].get<double>());
    };
    fmt::print("{:<28} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}\n", name, r["n"].get<std::int64_t>(),
               percent("median"), percent("p90"), percent("max"), percent("bias"),
               r["outside_range"].get<std::int64_t>(), r["no_profile"].get<std::int64_t>());
  };
  for (const auto& [source, r] : result["by_source"].items()) line(source, r);
  line("all", result);
}

// Names the sources of points that no profile is of, and those that profiles know.
void print_unknown(const json& result) {
  std::vector<std::string> unknown;
  for (const auto& [source, r] : result["by_source"].items()) {
    const auto points = r["no_profile"].get<std::int64_t>();
    if (points > 0) unknown.push_back(fmt::format("{} ({} {})", source, points, points == 1 ? "point" : "points"));
  }
  if (unknown.empty()) return;
  fmt::print(stderr, "no profile for {}; known: {}\n", fmt::join(unknown, ", "),
             fmt::join(validate::known_sources(), ", "));
}

// Times that are off by a hundred in the median are in another unit, not badly predicted.
void print_other_unit(const json& result) {
  for (const auto& [source, r] : result["by_source"].items()) {
    if (r["bias"].is_null()) continue;
    const double predicted = 1 + r["bias"].get<double>();  // times the measured time, in the median
    if (predicted > 0.01 && predicted < 100) continue;
    fmt::print(stderr,
               "{}: predicted times are {:.3g} times the measured ones in the median; is latency_us in microseconds?\n",
               source, predicted);
  }
}

// The same for `accuracy --published`: a line per table.
void print_agreement(const json& result) {
  fmt::print("{:>6} {:>8} {:>9} {:>7} {:>10} {:>7} {:>7} {:>7} {:>8} {:>8}  {}\n", "cells", "Kendall", "Spearman",
             "error", "simulation", "lookup", "full", "within", "order", "refused", "table");
  const auto line = [](const std::string& name, const json& r) {
    const auto n = r["n"].get<std::size_t>();
    // Scores of the uncompressed model and refused ones are not compared, and a table may have no others.
    const auto number = [&](const char* key, int digits, double factor, const char* unit) {
      return n > 0 && r.contains(key) && !r[key].is_null()
                 ? fmt::format("{:.{}f}{}", factor * r[key].get<double>(), digits, unit)
                 : "-";
    };
    const auto error = [&](const char* key) { return number(key, 1, 1, ""); };
    fmt::print("{:>6} {:>8} {:>9} {:>7} {:>10} {:>7} {:>7} {:>7} {:>8} {:>8}  {}\n", n, number("kendall", 3, 1, ""),
               number("spearman", 3, 1, ""), error("mae"), error("mae_simulated"), error("mae_lookup"),
               error("mae_full"), number("within", 0, 100, " %"), r["pairs"] == 0 ? "-" : number("order", 1, 100, " %"),
               r["refused"].get<std::size_t>(), name);
  };
  if (result.contains("by_table")) {
    for (const auto& [name, r] : result["by_table"].items()) line(name, r);
  }
  line("all", result);
  std::map<std::string, int> reasons;
  for (const char* const kind : {"cells", "averages"}) {
    for (const json& row : result[kind]) {
      if (row.contains("refused")) ++reasons[row["refused"].get<std::string>()];
    }
  }
  for (const auto& [reason, times] : reasons)
    fmt::print("refused, {}: {}\n", times == 1 ? "once" : fmt::format("{} times", times), reason);
}

// Prints the effect of each part of the generator: the change in points of each method's mean score without it.
void print_ablations(const json& result) {
  if (!result.contains("ablations")) return;
  const auto line = [](const std::string& name, const json& r) {
    const json& tau = r["kendall"];
    fmt::print("{:<22} {:>6} {:>8} {:>7.1f} {:>6.1f} %", name, r["n"].get<std::size_t>(),
               tau.is_null() ? "-" : fmt::format("{:.3f}", tau.get<double>()), r["mae"].get<double>(),
               100 * r["order"].get<double>());
    const char* before = "  ";
    if (r.contains("methods")) {
      for (const auto& [method, m] : r["methods"].items()) {
        fmt::print("{}{} {}", std::exchange(before, ", "), method, format_change(m["shift"].get<double>(), 1));
      }
    }
    fmt::print("\n");
  };
  fmt::print("\n{:<22} {:>6} {:>8} {:>7} {:>8}  {}\n", "without", "cells", "Kendall", "error", "order",
             "methods, mean shift in points");
  line("nothing", result);
  for (const json& ablation : result["ablations"]) line(ablation["name"].get<std::string>(), ablation);
}

// The budgets of a suite, whose cases are shown in another way.
void print_budgets(Suite suite) {
  suite.cases.clear();
  if (!suite.budgets.empty()) fmt::print("\n{}", validate::to_text(suite));
}

// The answer about a user's own file.
json document_of(const Suite& suite) {
  json document = suite.detail;
  const json whole = validate::to_json(suite);
  document["passed"] = whole["passed"], document["budgets"] = whole["budgets"];
  return document;
}

void write_document(const std::string& folder, const std::vector<Suite>& suites) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = (std::filesystem::path(folder) / "validation.json").string();
  write_whole_file(path, validate::to_json(suites).dump(1) + '\n');
  fmt::print(stderr, "{} (kvcast report {} makes a page of it)\n", path, folder);
}

int run(const ValidateOptions& options) {
  const bool file_given = answers_a_file(options);
  if (!options.points.empty() && !options.published.empty()) {
    throw UserError("validate: --points is for the suite kernels, --published for accuracy: give one");
  }
  const std::vector<std::string> of_file = {options.points.empty() ? "accuracy" : "kernels"};
  if (file_given && !options.suites.empty() && options.suites != of_file) {
    throw UserError("validate: --points is for the suite kernels, --published for accuracy, and for it alone");
  }
  const std::vector<const SuiteEntry*> asked = chosen(file_given ? of_file : options.suites);
  if (!options.ablation.empty() && std::ranges::find(asked, std::string("accuracy"), &SuiteEntry::name) == asked.end())
    throw UserError("validate: --ablation is for the suite accuracy");
  std::vector<Suite> suites;
  for (const SuiteEntry* entry : asked) suites.push_back(entry->run(options));
  const bool writes_its_own = std::set<std::string>{"serving", "gpu_pipeline"}.contains(asked.front()->name);
  if (!options.first.empty() && !writes_its_own)
    write_whole_file(options.first, validate::predictions_text(suites.front(), options.profile));
  if (!options.points.empty()) print_unknown(suites.front().detail), print_other_unit(suites.front().detail);
  if (!options.out.empty()) write_document(options.out, suites);
  if (options.as_json) {
    fmt::print("{}\n", (file_given ? document_of(suites.front()) : validate::to_json(suites)).dump(1));
  } else if (file_given) {
    options.points.empty() ? print_agreement(suites.front().detail) : print_points(suites.front().detail);
    print_budgets(suites.front());
    print_ablations(suites.front().detail);
  } else {
    for (const Suite& suite : suites) {
      fmt::print("{}\n", validate::to_text(suite));
      print_ablations(suite.detail);
      if (suite.name == "serving") fmt::print("{}", validate::serving_text(suite));
    }
  }
  const bool passed = std::ranges::all_of(suites, [](const Suite& s) { return s.passed(); });
  return passed ? 0 : 1;
}

}  // namespace

void add_validate(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("validate", "compare predictions with measured and published values");
  auto options = std::make_shared<ValidateOptions>();
  std::string names;
  for (const SuiteEntry& entry : entries()) names += std::string(names.empty() ? "" : ", ") + entry.name;
  command->add_option("SUITE", options->suites, names + "; default: all that take no measurements");
  const std::tuple<const char*, std::string&, const char*> texts[] = {
      {"--points", options->points, "kernels: measured decode-attention or GEMM times (CSV)"},
      {"--from", options->from,
       "results (JSON) of kvcast-pipeline (gpu_pipeline), kvcast-kernels-cpu (cpu_pipeline), kvcast-kernels or -cpu "
       "(policy_kernels), transformers_prompts.py (gpu_prompts)"},
      {"--profile", options->profile, "profile of the machine on which the results of --from were measured"},
      {"--claims", options->claims,
       "papers, serving, recurrences: folder of claims, load points or kernels (default: configs/validation/...)"},
      {"--intervals", options->intervals,
       "times: learn the half-widths of intervals from the residuals of each group, and write them to this file"},
      {"--first", options->first,
       "serving, gpu_pipeline, gpu_prompts, policy_kernels: write all predictions to this file (CSV), of rows without "
       "a time, too"},
      {"--published", options->published, "accuracy: published tables (CSV)"},
      {"--replays", options->replays, "accuracy: keep replays in this file, and reuse those in it"},
      {"--ablation", options->ablation,
       "accuracy: predict again without a part of the trace generator (a name in configs/accuracy/ablations.yaml, or "
       "all)"}};
  for (const auto& [name, to, about] : texts) command->add_option(name, to, about);
  command->add_flag("--without-evidence", options->without_evidence,
                    "accuracy --published: predict by simulation alone, without the published rows of other tables");
  command->add_option("--seeds", options->seeds, "accuracy: traces per task (2, which takes minutes)")
      ->check(CLI::Range(1, 64));
  command->add_flag("--json", options->as_json, "print JSON");
  command->add_option("-o,--out", options->out, "folder for validation.json, from which `kvcast report` makes a page")
      ->check(has_text());
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
