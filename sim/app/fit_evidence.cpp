#include "app/fit_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <tuple>

#include "accuracy/evaluate.hpp"
#include "accuracy/records.hpp"
#include "app/progress.hpp"
#include "base/parallel.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "evidence/predictor.hpp"

namespace kvcast::app {
namespace {

struct FitEvidenceOptions {
  std::vector<std::string> published, rows;
  std::string replays, records = "configs/accuracy/evidence.csv", parameters = "configs/accuracy/evidence.yaml";
  int seeds = 1;
  bool components = false;
};

// Rows of tables, each with its simulated score.
std::vector<evidence::Record> simulated(const std::vector<std::string>& tables, const FitEvidenceOptions& options) {
  const score::Link link = score::read_link(config::find_config("accuracy", "link", {}));
  const score::Catalogue catalogue;
  std::vector<evidence::Record> all;
  for (const std::string& path : tables) {
    accuracy::Plan plan = accuracy::make_plan(score::read_table(path), catalogue);
    accuracy::EvaluateOptions evaluate;
    evaluate.plan.seeds = options.seeds, evaluate.cache = options.replays, evaluate.threads = hardware_threads();
    std::unique_ptr<Progress> progress;
    std::once_flag made;
    evaluate.advance = [&](std::int64_t, std::int64_t total) {
      std::call_once(made, [&] { progress = std::make_unique<Progress>(path, total, 0); });
      progress->advance(1, "");
    };
    accuracy::evaluate(plan, link, evaluate);
    const std::vector<evidence::Record> records = accuracy::records_of(plan, catalogue);
    all.insert(all.end(), records.begin(), records.end());
  }
  return all;
}

std::vector<evidence::Record> records_of(const FitEvidenceOptions& options) {
  std::vector<evidence::Record> records =
      options.published.empty() ? evidence::read_records(options.records) : simulated(options.published, options);
  const std::vector<evidence::Record> own = simulated(options.rows, options);
  const auto table = [](const evidence::Record& r) { return std::tie(r.paper, r.table, r.model); };
  std::erase_if(records, [&](const evidence::Record& r) {
    return std::any_of(own.begin(), own.end(), [&](const evidence::Record& o) { return table(o) == table(r); });
  });
  records.insert(records.end(), own.begin(), own.end());
  return records;
}

int run(const FitEvidenceOptions& options) {
  const std::vector<evidence::Record> records = records_of(options);
  evidence::Components components = evidence::read_parameters(options.parameters).components;
  if (options.components) {
    std::unique_ptr<Progress> progress;
    components = evidence::fit_components(records, components, [&](std::size_t, std::size_t total) {
      if (!progress) progress = std::make_unique<Progress>("components", static_cast<std::int64_t>(total), 0);
      progress->advance(1, "");
    });
  }
  const evidence::JointFit fit(records, components);
  write_whole_file(options.records, evidence::write_records(fit.records()));
  const std::string text = evidence::write_parameters(evidence::with_spreads(fit, components));
  write_whole_file(
      options.parameters,
      "# Written by `kvcast fit evidence`; what the parameters mean: sim/evidence/estimator.hpp, predictor.hpp.\n" +
          text);
  fmt::print("{}", text);
  return 0;
}

}  // namespace

void add_fit_evidence(CLI::App& fit, int& result) {
  CLI::App* command = fit.add_subcommand(
      "evidence", "the estimate of scores from published rows and the simulation, and its errors on rows left out");
  auto options = std::make_shared<FitEvidenceOptions>();
  command->add_option("--published", options->published,
                      "simulate the rows of these tables (CSV) anew; default: the rows as they are");
  command->add_option("--rows", options->rows,
                      "simulate the rows of these tables (CSV) and add them, or put them in place of those of the "
                      "same paper, table and model");
  command->add_option("--replays", options->replays, "keep replays in this file, and use those that are there");
  command->add_option("--seeds", options->seeds, "traces a task")->check(CLI::Range(1, 64));
  command->add_flag("--components", options->components, "choose the variances of the levels, too (some minutes)");
  command->add_option("--records", options->records, "the rows' file");
  command->add_option("-o,--out", options->parameters, "the parameters' file, which is read first");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
