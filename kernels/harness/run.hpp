// Runs benchmarks: reference checks first, then every case that the results file does not have yet.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "harness/bench.hpp"
#include "harness/options.hpp"

namespace kvcast::kernels {

// What the two programs differ in.
struct Program {
  std::string name;  // as it is called: part of the repro commands
  Machine machine;
  Json environment;
  std::vector<Bench> benches;
};

// The exit code: 0 done, 1 a check failed, 3 cases are left.
int run_program(const Program& program, const Options& options);

// One line for each benchmark and axis.
std::string list_text(const std::vector<Bench>& benches);

// Of the budget that is left, the limits of the next case: its even share, one and a half times if earlier ones left
// time over. Never looser than the limits given.
Limits share(const Limits& limits, double left, std::size_t cases_left);

// The order in which n cases are visited under a budget: any first part of it spreads over all of them (van der
// Corput).
std::vector<std::size_t> spread_order(std::size_t n);

// Calls body with the options of the command line; prints UsageError and what() of other exceptions; the exit code.
int guarded_main(int argc, char** argv, const std::function<int(const Options&)>& body);

}  // namespace kvcast::kernels
