// The command line of the measuring programs.
#pragma once

#include <string>
#include <vector>

#include "harness/axis.hpp"
#include "harness/bench.hpp"
#include "harness/stop.hpp"

namespace kvcast::kernels {

struct Options {
  bool list = false, help = false, refcheck = false, quiet = false;
  std::vector<std::string> benches;  // exact names; empty: all
  std::vector<std::string> filters;  // parts of names, all of which must occur
  std::vector<Axis> axes;
  std::vector<Mode> modes;  // empty: those of each benchmark
  std::string json, csv;
  double budget = 0;      // seconds divided among all cases; 0: none
  int pass = 1;           // number of this pass over the cases; each pass has rows of its own
  double stop_after = 0;  // seconds after which no further case begins; 0: never
  double patience = 1;    // factor on the time after which a case or a check counts as hanging
  Limits limits;
};

// Throws UsageError. --help and --list are answered by the caller.
Options parse_options(const std::vector<std::string>& arguments);
std::string help_text(const std::string& program);

// The benchmarks that the options name, with their axes replaced. Throws UsageError for an unknown name, and for an
// axis that no selected benchmark has.
std::vector<Bench> select(const std::vector<Bench>& all, const Options& options);

}  // namespace kvcast::kernels
