// From tables of measured kernel times to the part of a profile that they establish.
#pragma once

#include <string>
#include <vector>

#include "config/hardware.hpp"

namespace kvcast::calibrate {

struct TableRequest {
  std::vector<std::string> files;                  // CSV, each of one kernel on one device in one framework
  config::Hardware base;                           // has what the tables say nothing about
  std::string source, date;                        // of the tables; when it was fitted
  double budget_median = 0.05, budget_p90 = 0.13;  // of the held-out points beyond twice the L2
};

struct TableResult {
  config::Hardware hardware;                      // base with the fitted numbers
  std::vector<config::Calibration> calibrations;  // one a file
  std::vector<std::string> misses;                // budgets that are not kept, in words
  std::string yaml;                               // to be included by profiles
};

// UserError for what is wrong with the files, among them points without held-out ones.
TableResult fit_tables(const TableRequest& request);

}  // namespace kvcast::calibrate
