// kvcast report DIR: a page from the store alone.
#include "report/report.hpp"

#include <fmt/format.h>

#include <boost/algorithm/string/replace.hpp>
#include <filesystem>
#include <memory>

#include "app/commands.hpp"
#include "store/store.hpp"

namespace kvcast::app {
namespace {

void print_findings(const std::string& dir) {
  if (!std::filesystem::exists(std::filesystem::path(dir) / "results.sqlite")) return;  // a validation alone
  const auto store = store::Store::open(dir, store::Store::Open::kExisting);
  const auto planned = store.metadata(store::kMetaPlanned);
  const std::int64_t there =
      store.count(result::Status::kOk) + store.count(result::Status::kOom) + store.count(result::Status::kFailed);
  if (planned && std::to_string(there) != *planned) {
    fmt::print("{} of {} experiments are there: `kvcast sweep` with the same file and folder goes on\n", there,
               *planned);
  }
  for (const store::Finding& finding : store.findings()) {
    fmt::print("{}\n  {}\n", finding.title, boost::replace_all_copy(finding.text, "\n", "\n  "));
    if (!finding.detail.empty()) fmt::print("    {}\n", boost::replace_all_copy(finding.detail, "\n", "\n    "));
  }
}

}  // namespace

void add_report(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("report", "write a self-contained page (OUT/index.html) from a sweep's results");
  auto dir = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  command->add_option("DIR", *dir, "folder that holds results.sqlite, validation.json or both")->required();
  command->add_option("-o,--out", *out, "folder to write to (default: DIR/report)");
  command->callback([dir, out, &result] {
    const std::string target = out->empty() ? *dir + "/report" : *out;
    report::write_report(*dir, target);
    print_findings(*dir);
    fmt::print("report: {}/index.html\n", target);
    result = 0;
  });
}

}  // namespace kvcast::app
