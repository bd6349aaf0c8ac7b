// kvcast report DIR...: a page from stores alone.
#include "report/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <boost/algorithm/string/replace.hpp>
#include <filesystem>
#include <memory>
#include <set>

#include "app/commands.hpp"
#include "app/program.hpp"
#include "app/settings.hpp"
#include "base/error.hpp"
#include "base/temporary.hpp"
#include "report/page.hpp"
#include "report/print.hpp"
#include "report/stores.hpp"
#include "store/store.hpp"

namespace kvcast::app {
namespace {

void print_findings(const report::ReportSource& source) {
  const store::Store& store = *source.store;
  const auto planned = store.metadata(store::kMetaPlanned);
  if (planned && std::to_string(source.part.of) != *planned) {
    fmt::print(
        "{} of {} experiments are finished: `kvcast sweep` with the same file and folder resumes the sweep, `kvcast "
        "merge` joins the folders of shards\n",
        source.part.of, *planned);
  }
  for (const store::Finding& finding : store.findings()) {
    fmt::print("{}\n  {}\n", finding.title, boost::replace_all_copy(finding.text, "\n", "\n  "));
    if (!finding.detail.empty()) fmt::print("    {}\n", boost::replace_all_copy(finding.detail, "\n", "\n    "));
  }
}

// Says how to join shards of one sweep, which are rarely meant to be compared.
void tell_of_shards(const std::vector<std::string>& dirs, const report::Stores& stores) {
  std::set<std::string> configs;
  for (const report::ReportSource& source : stores.sources()) {
    if (source.part.of >= source.store->shown().size()) return;
    configs.insert(source.store->metadata(store::kMetaConfig).value_or(""));
  }
  if (configs.size() == 1)
    fmt::print("These are shards of one sweep: kvcast merge {} -o OUT joins them\n", fmt::join(dirs, " "));
}

void print_changes(const std::vector<std::string>& dirs, const report::Written& report) {
  tell_of_shards(dirs, *report.stores);
  for (const nlohmann::json& answer : report.answers)
    fmt::print("{}\n  {}\n", answer.at("question").get<std::string>(), answer.at("text").get<std::string>());
}

struct ReportOptions {
  std::vector<std::string> dirs, where;
  std::string out, figures, width = "single", font = "sans-serif", view;
};

std::string make_scratch() {
  std::string path = (std::filesystem::temp_directory_path() / "kvcast-print-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) throw UserError("no temporary folder can be made");
  return path;
}

int print_figures(const ReportOptions& options) {
  const std::string node = program_on_path("node", "nodejs");
  program_on_path("rsvg-convert", "librsvg2-bin");
  program_on_path("fc-match", "fontconfig");
  for (const char* name : {"hb-shape", "hb-subset"}) program_on_path(name, "libharfbuzz-bin");
  report::PrintOptions print{options.figures, report::parse_width(options.width), options.font, options.view};
  const nlohmann::json job = report::print_job(options.dirs, print, {.where = options.where});
  report::make_folder(options.figures);
  const Temporary scratch(make_scratch());
  const std::string path = scratch.path() + "/job.json";
  report::write_file(path, [&job](std::ostream& file) { file << report::dump(job); });
  return run_program(node, {job.at("program").get<std::string>(), path});
}

int write_page(const ReportOptions& options) {
  const std::string& last = options.dirs.back();
  const std::string target = options.out.empty() ? last + "/report" : options.out;
  const report::Written report = report::write_report(options.dirs, target, {.where = options.where});
  if (options.dirs.size() > 1) {
    print_changes(options.dirs, report);
  } else if (report.stores) {  // a validation may have none
    print_findings(report.stores->sources().front());
  }
  fmt::print("report: {}\n", report.page);
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("report", "write a self-contained page (OUT/index.html) from a sweep's results");
  auto options = std::make_shared<ReportOptions>();
  command
      ->add_option("DIR", options->dirs,
                   "folder with results.sqlite, validation.json or both; several are compared with the first")
      ->required();
  command->add_option("-o,--out", options->out, "folder to write to (default: report/ in the last DIR)")
      ->check(has_text());
  command
      ->add_option("--where", options->where,
                   "KEY=VALUE: show the experiments with these settings; without any, a sweep of more than 5,000 is "
                   "shown in part")
      ->allow_extra_args(false);
  CLI::Option* figures =
      command->add_option("--figures", options->figures,
                          "write the page's figures for print (SVG and PDF) to this folder instead of the page");
  command
      ->add_option("--width", options->width,
                   "width of the figures: 85mm, 17.8cm, 3.3in, single (85mm), double (178mm)")
      ->needs(figures);
  command->add_option("--font", options->font, "font of the figures: an installed family")->needs(figures);
  command
      ->add_option("--view", options->view,
                   "state of the page that the figures show, as its address has it after #: "
                   "'context=65536&throughput_budget.axis=log'")
      ->needs(figures);
  command->callback(
      [options, &result] { result = options->figures.empty() ? write_page(*options) : print_figures(*options); });
}

}  // namespace kvcast::app
