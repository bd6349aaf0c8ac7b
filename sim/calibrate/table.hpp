// Fits a part of a profile to tables of measured kernel times.
#pragma once

#include <string>
#include <vector>

#include "config/hardware.hpp"

namespace kvcast::calibrate {

struct TableRequest {
  std::vector<std::string> files;                  // CSV, one of attention, one of GEMMs, or both
  config::Hardware base;                           // supplies the numbers that the tables do not cover
  std::string source, date;                        // source of the tables; date of the fit
  double budget_median = 0.05, budget_p90 = 0.13;  // for the held-out points beyond twice the L2
};

struct TableResult {
  config::Hardware hardware;                      // base with the fitted numbers
  std::vector<config::Calibration> calibrations;  // one per file
  std::vector<std::string> misses;                // budgets that are exceeded, in words
  std::string yaml;                               // to be included by profiles
};

// Throws UserError for errors in the files, including points without held-out ones, for files that cannot be fitted
// together, and for points of a device that is known to be another than the base's.
TableResult fit_tables(const TableRequest& request);

}  // namespace kvcast::calibrate
