#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <set>
#include <tuple>

#include "accuracy/evaluate.hpp"
#include "accuracy/records.hpp"
#include "app/commands.hpp"
#include "app/left_out_rows.hpp"
#include "app/outputs.hpp"
#include "app/progress.hpp"
#include "base/parallel.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "evidence/predictor.hpp"

namespace kvcast::app {
namespace {

struct FitEvidenceOptions {
  std::vector<std::string> rows;
  std::string replays, records, parameters;
  int seeds = 1;
  bool components = false;
};

// The paper of rows whose table names none. Without a paper, rows would count as those of other settings.
constexpr const char* kMeasured = "measured";

// Rows of a table, each with its simulated score. Prints which rows are left out.
std::vector<evidence::ScoreRecord> simulated(const std::string& path, const score::Catalogue& catalogue,
                                             const FitEvidenceOptions& options) {
  std::vector<score::LeftOutRow> left_out;
  std::vector<score::PublishedRow> rows = score::read_table(path, &left_out);
  print_contradictions(rows);
  for (score::PublishedRow& row : rows) {
    if (row.paper.empty()) row.paper = kMeasured;
  }
  accuracy::ScoreComparison plan = accuracy::make_comparison(rows, catalogue);
  accuracy::EvaluateOptions evaluate;
  evaluate.plan.seeds = options.seeds, evaluate.cache = options.replays, evaluate.threads = hardware_threads();
  evaluate.advance = progress_of(path);
  for (const accuracy::Average& average : plan.averages)
    left_out.push_back({average.row.where, "a mean over tasks; only scores of single tasks are evidence"});
  plan.averages.clear();
  accuracy::evaluate(plan, score::read_recall_map(config::find_config("accuracy", "link", {})), evaluate);
  for (accuracy::Cell& cell : plan.cells) {
    if (cell.refused.empty() && cell.full <= 0) cell.refused = "the uncompressed model scores 0";
  }
  const std::vector<score::LeftOutRow> refused = refused_rows(plan.cells, {});
  left_out.insert(left_out.end(), refused.begin(), refused.end());
  std::vector<evidence::ScoreRecord> records = accuracy::records_of(plan, catalogue);
  print_left_out(left_out);
  fmt::print(stderr, "{}: {} rows added, {} left out\n", path, records.size(), left_out.size());
  return records;
}

// The rows of a file with those of the tables added, or put in place of those of the same paper, table and model.
std::vector<evidence::ScoreRecord> records_of(const std::string& base, const FitEvidenceOptions& options) {
  std::vector<evidence::ScoreRecord> records = evidence::read_records(base);
  const score::Catalogue catalogue;
  std::size_t added = 0;
  for (const std::string& path : options.rows) {
    const std::vector<evidence::ScoreRecord> own = simulated(path, catalogue, options);
    const auto table = [](const evidence::ScoreRecord& r) { return std::tuple(r.paper, r.table, r.model); };
    std::set<std::tuple<std::string, std::string, std::string>> tables;
    for (const evidence::ScoreRecord& r : own) tables.insert(table(r));
    std::erase_if(records, [&](const evidence::ScoreRecord& r) { return tables.contains(table(r)); });
    records.insert(records.end(), own.begin(), own.end());
    added += own.size();
  }
  if (added == 0 && !options.rows.empty())
    throw UserError({options.rows.front(), 0, 0}, "no row can be added; nothing is written");
  return records;
}

// A file that the command changes: where it is read from and written to. A new file starts from the one that `run`
// reads, and without a name that one is changed.
struct Changed {
  std::string from, to;

  void print_start() const {
    if (from != to) fmt::print(stderr, "{}: a new file, which started from {}\n", to, from);
  }
};

Changed changed(const std::string& named, const std::string& below) {
  const std::string found = config::find_file(below).value_or("configs/" + below);
  if (named.empty()) return {found, found};
  if (std::filesystem::is_regular_file(named)) return {named, named};
  return {found, named};
}

int run(const FitEvidenceOptions& options) {
  const Changed records = changed(options.records, "accuracy/evidence.csv");
  const Changed parameters = changed(options.parameters, "accuracy/evidence.yaml");
  refuse_same(records.to, "--records", parameters.to, "-o");
  std::vector<std::string> inputs = options.rows;
  inputs.push_back(options.replays);
  refuse_overwritten(records.to, "--records", inputs);
  inputs.push_back(records.to);
  refuse_overwritten(parameters.to, "-o", inputs);
  evidence::Components components = evidence::read_parameters(parameters.from).components;
  // An output that cannot be written is found before the replays, which take minutes.
  WholeFile records_file(records.to), parameters_file(parameters.to);
  const std::vector<evidence::ScoreRecord> all = records_of(records.from, options);
  if (options.components) {
    components = evidence::fit_components(all, components, progress_of("components"));
  }
  const evidence::JointFit fit(all, components);
  const std::string text = evidence::write_parameters(evidence::with_spreads(fit, components));
  records_file.stream() << evidence::write_records(fit.records());
  parameters_file.stream() << "# Written by `kvcast fit evidence`; what the parameters mean: "
                              "sim/evidence/estimator.hpp, predictor.hpp.\n"
                           << text;
  records_file.commit(), parameters_file.commit();
  records.print_start(), parameters.print_start();
  fmt::print("{}", text);
  fmt::print(stderr, "{} and {} are written\n", records.to, parameters.to);
  return 0;
}

}  // namespace

void add_fit_evidence(CLI::App& fit, int& result) {
  CLI::App* command = fit.add_subcommand(
      "evidence",
      "fit the estimate of scores from published rows and the simulation, print its errors on rows left out, and write "
      "it (--records, -o; by default where runs read it)");
  auto options = std::make_shared<FitEvidenceOptions>();
  command->add_option("--rows,--published", options->rows,
                      "simulate the rows of these tables (CSV) and add them; they replace rows of the same paper, "
                      "table and model");
  command->add_option("--replays", options->replays, "keep replays in this file, and reuse those in it");
  command->add_option("--seeds", options->seeds, "synthetic traces per task")->check(CLI::Range(1, 64));
  command->add_flag("--components", options->components, "also fit the variances of the levels, which takes minutes");
  command->add_option("--records", options->records,
                      "file of the rows (default: the one that `run` reads); a new file starts as a copy of that one");
  command->add_option("-o,--out", options->parameters,
                      "file of the parameters, which is read first (default and new files as for --records)");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
