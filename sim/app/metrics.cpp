// kvcast metrics [NAME]: the reference of the numbers that a result has, from the table of metrics.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "config/text.hpp"
#include "result/json.hpp"
#include "result/metric.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;
using result::Metric;

struct MetricsOptions {
  std::string name;
  bool as_json = false, as_markdown = false;
};

const Metric& find(const std::string& name) {
  if (const Metric* const metric = result::find_metric(name)) return *metric;
  std::vector<std::string> known;
  for (const Metric& metric : result::all_metrics()) {
    known.push_back(metric.path);
    if (!metric.alias.empty()) known.push_back(metric.alias);
  }
  throw UserError(
      fmt::format("unknown metric \"{}\"{}; `kvcast metrics` lists them", name, config::did_you_mean(name, known)));
}

// Parts of a step or of the prefill, one per operation kind: listed after all other metrics.
bool is_of_kind(const Metric& metric) { return metric.alias.find('.') != std::string::npos; }

template <class Visit>
void for_each(bool of_kinds, const Visit& visit) {
  for (const Metric& metric : result::all_metrics()) {
    if (is_of_kind(metric) == of_kinds) visit(metric);
  }
}

void print_one(const Metric& metric) {
  const json entry = result::to_json(metric);
  fmt::print("{}\n{}\n\n", metric.path, metric.definition);
  if (!metric.alias.empty()) fmt::print("  {:<12} {}\n", "alias", metric.alias);
  fmt::print("  {:<12} {}\n", "unit", unit_name(metric.unit));
  fmt::print("  {:<12} {}\n", "better", better_name(metric.better));
  fmt::print("  {:<12} {}\n", "label", metric.label);
  fmt::print("  {:<12} {}\n", "based on", entry["basis"].get<std::string>());
  fmt::print("  {:<12} {}\n", "interval", has_interval(metric) ? "yes" : "no");
}

void print_list() {
  for (const bool of_kinds : {false, true}) {
    if (of_kinds) fmt::print("\nBy operation kind\n");
    for_each(of_kinds, [](const Metric& m) {
      fmt::print("{:<34} {:<22} {:<9} {:<8} {}\n", m.path, m.alias, unit_name(m.unit), better_name(m.better),
                 m.definition);
    });
  }
  fmt::print("\n`kvcast metrics NAME` shows one in full.\n");
}

void print_table(bool of_kinds) {
  fmt::print("| path | alias | unit | better | interval | definition |\n|---|---|---|---|---|---|\n");
  for_each(of_kinds, [](const Metric& m) {
    fmt::print("| `{}` | {} | {} | {} | {} | {} |\n", m.path, m.alias.empty() ? "" : "`" + m.alias + "`",
               unit_name(m.unit), better_name(m.better), has_interval(m) ? "yes" : "no", m.definition);
  });
}

void print_markdown() {
  fmt::print(
      "# Metrics\n\n"
      "Every number of a result. The path is its name in `kvcast run --json`, in the columns of `results.sqlite` and "
      "of\n"
      "`tables/experiments.csv`, and in formulas; the alias is a short name for formulas, charts and the view `runs`.\n"
      "Shares are fractions of 1. Metrics with an interval have the columns `PATH.low`, `PATH.high` and `PATH.origin`\n"
      "as well; the interval is an 80 % uncertainty interval. `kvcast metrics --markdown` writes this page.\n\n");
  print_table(false);
  fmt::print(
      "\n## By operation kind\n\n"
      "Exposed times of all kinds and idle times add up to the step, the prefill or the index build.\n\n");
  print_table(true);
}

void print_json() {
  json list = json::array();
  for (const Metric& metric : result::all_metrics()) list.push_back(result::to_json(metric));
  fmt::print("{}\n", list.dump(1));
}

void run(const MetricsOptions& options) {
  if (options.name.empty()) {
    return options.as_json ? print_json() : options.as_markdown ? print_markdown() : print_list();
  }
  const Metric& metric = find(options.name);
  if (options.as_json) return fmt::print("{}\n", result::to_json(metric).dump(1));
  print_one(metric);
}

}  // namespace

void add_metrics(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("metrics", "list the numbers that a result has, or describe one");
  auto options = std::make_shared<MetricsOptions>();
  CLI::Option* name = command->add_option("NAME", options->name, "path or alias of a metric: decode.tpot_s.mean, tpot");
  CLI::Option* as_json = command->add_flag("--json", options->as_json, "print JSON");
  command->add_flag("--markdown", options->as_markdown, "print the page docs/metrics.md")
      ->excludes(as_json)
      ->excludes(name);
  command->callback([options, &result] {
    run(*options);
    result = 0;
  });
}

}  // namespace kvcast::app
