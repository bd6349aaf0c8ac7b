// The parts of a page: our own under reports/, and Vega as Debian packages it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/report.hpp"

namespace kvcast::report {

struct ChartFile {
  std::string name;     // names the files: "throughput_budget"
  nlohmann::json spec;  // a Vega specification; data sets without values are filled from the store
};

struct Assets {
  std::string page;                       // the HTML template
  std::string style;                      // CSS
  std::string script;                     // our JavaScript, files in the manifest's order
  std::string vega;                       // Vega's parts joined into one script that sets window.vega
  std::vector<ChartFile> charts;          // in the order of the page, the shared part merged in
  std::vector<ChartFile> service_charts;  // likewise, of runs with traffic
  std::vector<ChartFile> plan_charts;     // charts of answers, by their kinds
  std::string print;                      // path of the program that draws figures for print
  std::string methods_page;               // the template of the page of methods
  nlohmann::json methods;                 // [{title, assumptions: [{statement, source, basis, moves}]}]
  nlohmann::json palette;                 // colours, symbols and dashes
  nlohmann::json themes;                  // Vega configurations, light and dark

  struct Validation {
    std::string page;    // the template of the validation page
    std::string script;  // its JavaScript
    std::vector<ChartFile> charts;
  } validation;

  struct Planner {
    std::string page, style, script;
    std::vector<ChartFile> charts;
    std::string ahead;  // path of a list of sweeps, whose replays are made ahead
  } planner;            // the page of `kvcast serve`
};

// Throws UserError naming the file that is missing or malformed, and the Debian package if that file is Vega's; also if
// a chart's `usermeta` is incomplete, or names a metric or a data set that does not exist.
Assets load_assets(const Options& options);

// Returns the chart with the shared specification before its own: signals, data, scales and marks of `shared` come
// first, and a signal or data set that both name is the chart's.
nlohmann::json merge_spec(const nlohmann::json& shared, const nlohmann::json& chart);

}  // namespace kvcast::report
