// Fits selected numbers of a machine to measured cases, through the cost model itself.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "config/hardware.hpp"
#include "graph/op.hpp"
#include "hardware/cost_model.hpp"

namespace kvcast::calibrate {

// The part of an op that a time measures.
enum class Measure : unsigned char {
  kAlone,      // from its start to its end, alone on the machine
  kIssue,      // time for which it occupies the issuing host thread
  kEngine,     // time for which it occupies the copy engine, all calls queued before
  kStreamGap,  // `count` kernels that do nothing, one after another in a stream ...
  kGraphGap,   // ... or in a CUDA graph
  kBothWays,   // `count` bytes over the link, half of them in each direction
};

// A measured case, and the op that represents it.
struct MeasuredOp {
  std::string id, bench;  // bench: the group in which it is held out and fitted
  graph::Op op;
  double seconds = 0;
  double spread = 0, noise = 0;  // of its row
  double weight = 1;             // weight in a fit
  Measure measure = Measure::kAlone;
  double count = 1;
  double threads = 0;  // CPU workers that took part; 0: all
  std::string by;      // the library whose kernel was measured; empty: kvcast's own
  bool held_out = false;
};

// Marks every fourth case of each bench as held out, beginning with the third: a fixed rule. None of a bench that has
// fewer than `least`, because too few held-out cases decide nothing.
void hold_out(std::vector<MeasuredOp>& cases, std::size_t least = 0);

// The machine whose kernels are launched one by one in a stream, as in the measuring programs: the surrounding overhead
// is in their times.
hardware::CostModel stream_model(const config::Hardware& machine);
// Seconds of these cases on a machine.
std::vector<double> predict(const config::Hardware& hardware, std::span<const MeasuredOp> cases);

// Relative errors, either of those that are held out or of the others.
std::vector<double> relative_errors(const config::Hardware& hardware, std::span<const MeasuredOp> cases, bool held_out);

// There are fewer cases than a fit needs: the measurements may be correct, but they do not determine the numbers.
struct TooFewCases : UserError {
  using UserError::UserError;
};

// Width of the prior, in logarithms, that a number equals that of a prior machine: its uncertainty, at least 50 %.
double belief_width(double uncertainty);

// Fits the numbers under `keys` (all points of a curve) to the cases that are not held out; they start from the
// machine's values and stay within a factor of 1000 of them, efficiencies at or below 1. Numbers that the cases do not
// identify stay near those of `prior`. Returns the keys of numbers that ended at a bound. Throws TooFewCases, which
// names the stage, for fewer cases than numbers.
std::vector<std::string> fit_stage(std::string_view name, std::span<const std::string_view> keys,
                                   std::span<const MeasuredOp> cases, const config::Hardware& prior,
                                   config::Hardware& hardware);

}  // namespace kvcast::calibrate
