// kvcast fit accuracy: chooses the score model by published tables.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "accuracy/fit.hpp"
#include "app/commands.hpp"
#include "app/left_out_rows.hpp"
#include "app/outputs.hpp"
#include "app/progress.hpp"
#include "base/parallel.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"

namespace kvcast::app {
namespace {

struct FitOptions {
  std::vector<std::string> published;
  std::string replays, out;
  int seeds = 2;
};

// The rows that the fit uses. Scores of the uncompressed model are always inputs; of the others, only those that are
// not held out.
std::vector<score::PublishedRow> rows_of(const std::vector<std::string>& paths) {
  std::vector<score::PublishedRow> rows;
  std::vector<score::LeftOutRow> left_out;
  for (const std::string& path : paths) {
    const std::vector<score::PublishedRow> table = score::read_table(path, &left_out);
    print_contradictions(table);
    rows.insert(rows.end(), table.begin(), table.end());
  }
  print_left_out(left_out);
  std::erase_if(rows, [](const score::PublishedRow& row) { return row.held_out && !accuracy::is_full(row); });
  return rows;
}

int run(const FitOptions& options) {
  std::vector<std::string> paths = options.published, names;
  if (paths.empty()) paths = {score::own_table("ruler"), score::own_table("blocks")};
  for (const std::string& path : paths) names.push_back(path.substr(path.find_last_of('/') + 1));
  refuse_repeated(paths);
  const std::string out = options.out.empty()
                              ? config::find_file("accuracy/link.yaml").value_or("configs/accuracy/link.yaml")
                              : options.out;
  std::vector<std::string> inputs = paths;
  inputs.push_back(options.replays);
  refuse_overwritten(out, "-o", inputs);
  // An output that cannot be written is found before the replays, which take minutes.
  WholeFile file(out);
  accuracy::ScoreComparison plan = accuracy::make_comparison(rows_of(paths), score::Catalogue());
  accuracy::EvaluateOptions evaluate;
  evaluate.plan.seeds = options.seeds;
  evaluate.cache = options.replays;
  evaluate.threads = hardware_threads();
  evaluate.advance = progress_of("Replaying");
  std::vector<accuracy::Cell> all = accuracy::all_cells(plan);
  const std::vector<accuracy::CellSamples> replays = accuracy::replay_cells(all, evaluate);
  const auto cells = static_cast<std::ptrdiff_t>(plan.cells.size());
  print_left_out(refused_rows({all.data(), plan.cells.size()}, plan.averages));
  const std::vector<accuracy::CellSamples> of_cells(replays.begin(), replays.begin() + cells);
  score::RecallMap link = accuracy::fit_link({all.begin(), all.begin() + cells}, of_cells);
  std::size_t used = 0;
  for (const accuracy::CellSamples& r : of_cells) used += r.empty() ? 0 : 1;
  if (used == 0)
    throw UserError({paths.front(), 0, 0}, "no row to fit: no row outside the held-out ones has a prediction");
  if (used < accuracy::kFittedParameters) {
    fmt::print(stderr, "{} {} for {} parameters: the rows do not determine the fit, and its intervals are no errors\n",
               used, used == 1 ? "row" : "rows", accuracy::kFittedParameters);
  }
  link.source = fmt::format("kvcast fit accuracy: {} rows of {} that are not held out, {} traces per task", used,
                            fmt::join(names, " and "), options.seeds);
  accuracy::predict_cells(all, replays, link);
  accuracy::settle(plan, std::move(all), link);
  if (const auto common = accuracy::fit_common(plan.averages)) {
    link.common = *common;
    link.common_source = fmt::format(
        "kvcast fit accuracy: 80 % of {} published averages of these tables are within",
        std::ranges::count_if(plan.averages, [](const auto& a) { return a.refused.empty() && a.parts.size() > 1; }));
  }
  file.stream() << "# Written by `kvcast fit accuracy`; sim/score/recall_map.hpp describes the parameters.\n"
                << score::write_recall_map(link);
  file.commit();
  fmt::print("{}", score::write_recall_map(link));
  return 0;
}

}  // namespace

void add_fit(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("fit", "fit the score model, or the estimate of scores, to published values");
  command->require_subcommand(1);
  CLI::App* link = command->add_subcommand("accuracy", "fit the score model, which maps attention kept to task scores");
  auto options = std::make_shared<FitOptions>();
  link->add_option("--published", options->published, "tables (CSV; default: ruler and blocks of configs/validation)");
  link->add_option("--replays", options->replays, "keep replays in this file, and reuse those in it");
  link->add_option("--seeds", options->seeds, "synthetic traces per task")->check(CLI::Range(1, 64));
  link->add_option("-o,--out", options->out, "file of the score model (default: the one that `run` reads)");
  link->callback([options, &result] { result = run(*options); });
  add_fit_scores(*command, result);
  add_fit_evidence(*command, result);
}

}  // namespace kvcast::app
