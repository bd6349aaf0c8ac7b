// kvcast report DIR: a page from the store alone.
#include "report/report.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/commands.hpp"

namespace kvcast::app {

void add_report(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("report", "write a self-contained page (OUT/index.html) from a sweep's results");
  auto dir = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  command->add_option("DIR", *dir, "folder that holds results.sqlite")->required();
  command->add_option("-o,--out", *out, "folder to write to (default: DIR/report)");
  command->callback([dir, out, &result] {
    const std::string target = out->empty() ? *dir + "/report" : *out;
    report::write_report(*dir, target);
    fmt::print("report: {}/index.html\n", target);
    result = 0;
  });
}

}  // namespace kvcast::app
