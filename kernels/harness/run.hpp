// Runs benchmarks: reference checks first, then every case that the results file does not have yet.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "harness/bench.hpp"
#include "harness/options.hpp"

namespace kvcast::kernels {

// Properties in which the two programs differ.
struct Program {
  std::string name;  // as it is called: part of the repro commands
  Machine machine;
  Json environment;
  std::vector<Bench> benches;
  // Called after an exception: returns why nothing more can be measured in this process (an illegal access breaks a
  // CUDA context permanently), or an empty text if it can continue. Null: it always can.
  std::function<std::string()> broken;
  double case_seconds = 0;  // longer cases and checks count as hanging, and so does the device; 0: waits for ever
};

// The exit code: 0 done, 1 a check failed, 3 cases are left, 4 the same because the device broke.
int run_program(const Program& program, const Options& options);

// One line for each benchmark and axis.
std::string list_text(const std::vector<Bench>& benches);

// Returns the limits of the next case under the budget that is left: its even share, one and a half times if earlier
// ones left time over. Never looser than the limits given.
Limits share(const Limits& limits, double left, std::size_t cases_left);

// The order in which n cases are visited under a budget: any first part of it spreads over all of them (van der
// Corput).
std::vector<std::size_t> spread_order(std::size_t n);

// A case of a benchmark that has no row yet.
struct Pending {
  const Bench* bench;
  Case axes;
  Mode mode;
};

// The order of a session: as listed or, when time is short, round robin over the benchmarks, each in spread order with
// urgent cases first and as many cases per round as it has turns. Unmeasured cases then thin out every grid, instead of
// being all those at the end of the list. The cases of a benchmark are adjacent in `cases`.
class Visits {
 public:
  Visits(std::vector<Pending> cases, bool spread);
  // Null if none is left. again: another case of the benchmark that had the last one, if it has any left, because a
  // skipped case takes no turn.
  const Pending* next(bool again);
  // The next case of this benchmark, regardless of turns; null if it has none left.
  const Pending* next_of(const Bench* bench);
  std::size_t left() const { return left_; }

 private:
  struct Group {
    std::vector<Pending> cases;
    std::size_t next = 0;
  };
  std::vector<Group> groups_;
  bool spread_;
  std::size_t group_ = 0, left_ = 0;
  int turn_ = 0;  // of the group in this round
};

// Calls body with the options of the command line; prints UsageError and what() of other exceptions; the exit code.
int guarded_main(int argc, char** argv, const std::function<int(const Options&)>& body);

}  // namespace kvcast::kernels
