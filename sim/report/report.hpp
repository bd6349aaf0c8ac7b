// The report of a sweep: a self-contained page, made from the store alone.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/stores.hpp"

namespace kvcast::report {

struct Options {
  // Folder of the page's parts (page.json and the files that it names). Empty: reports/ in the working directory, else
  // in the source tree that kvcast was built from.
  std::string assets = {};
  // Folder in which Debian keeps browser libraries; Vega is read from its vega/ folder, or from that of javascript/ in
  // the data folder, if that has one.
  std::string javascript = "/usr/share/javascript";
  bool vega = true;  // read Vega, which pages embed
  // KEY=VALUE: the page, its figures and its tables but experiments.csv show the experiments with these settings.
  // Without any, a sweep of more than 5,000 is shown in part (report/part.hpp).
  std::vector<std::string> where = {};
};

struct Written {
  std::string page;              // its path
  std::optional<Stores> stores;  // that the report was made from, open; none of a validation alone
  nlohmann::json answers;        // of the page: see Content
};

// Reads DIR/results.sqlite and writes
//   OUT/index.html      the page, complete in one file: opens offline from file:// in any browser of 2020 or later
//   OUT/methods.html    the assumptions of the model and the definitions of the policies, with their sources
//   OUT/figures/*.json  each figure as a Vega 5 specification with its data inside
//   OUT/tables/*.csv    the data of the figures, and every experiment with every number (experiments.csv)
// Files of an earlier report are replaced, each atomically, so a reader never sees half a page. If DIR contains
// validation.json (`kvcast validate -o DIR`), it becomes OUT/validation.html and OUT/tables/validation.csv; without a
// store in the same folder, the page is OUT/index.html as well. Throws UserError if neither can be read, OUT cannot be
// written, or Vega is not installed (naming the package).
//
// Several folders are compared on one page, which begins with the changes from the first to each of the others
// (OUT/tables/changes.csv); each must contain a store.
Written write_report(const std::vector<std::string>& dirs, const std::string& out, const Options& options = {});

}  // namespace kvcast::report
