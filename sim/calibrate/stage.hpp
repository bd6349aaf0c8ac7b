// Fitting some numbers of a machine to some measured cases, through the cost model itself.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "config/hardware.hpp"
#include "graph/op.hpp"

namespace kvcast::calibrate {

// What of an op a time is.
enum class Measure : unsigned char {
  kAlone,      // from its start to its end with nothing else going on
  kIssue,      // what the issuing host thread is busy with it
  kEngine,     // what the copy engine takes, all calls queued before
  kStreamGap,  // `count` kernels that do nothing, one after another in a stream ...
  kGraphGap,   // ... or in a CUDA graph
  kBothWays,   // `count` bytes over the link, half of them in each direction
};

// A case that was measured, and the op that stands for it.
struct MeasuredOp {
  std::string id, bench;  // bench: what it is held out and fitted with
  graph::Op op;
  std::vector<graph::Op> then;  // kernels behind it that belong to the same call
  double seconds = 0;
  double spread = 0, noise = 0;  // of the row it comes from
  double weight = 1;             // in a fit
  Measure measure = Measure::kAlone;
  double count = 1;
  double threads = 0;  // CPU workers that took part; 0: all
  bool held_out = false;
};

// Of the cases of each bench every fourth is held out, beginning with the third: a fixed rule. None of a bench that has
// fewer than `least`: what so few leave for a judgement decides nothing.
void hold_out(std::vector<MeasuredOp>& cases, std::size_t least = 0);

// Seconds of these cases on a machine.
std::vector<double> predict(const config::Hardware& hardware, std::span<const MeasuredOp> cases);

// Relative errors: of those that are held out or of the others.
std::vector<double> relative_errors(const config::Hardware& hardware, std::span<const MeasuredOp> cases, bool held_out);

// There is less to fit to than a fit needs: the measurements may be all right, but they do not tell.
struct TooFewCases : UserError {
  using UserError::UserError;
};

// How wide, in logarithms, the belief is that a number is what a prior machine has: its uncertainty, 50 % at least.
double belief_width(double uncertainty);

// Sets the numbers under `keys` (all points of a curve) so that the cases that are not held out come out; they start
// from what the machine has and stay within a factor of 1000 of it, efficiencies at or below 1. Where the cases do not
// tell numbers apart, they stay near those of `prior`. Returns the keys of numbers that ended at a bound. Fewer cases
// than numbers: TooFewCases, which names the stage.
std::vector<std::string> fit_stage(std::string_view name, std::span<const std::string_view> keys,
                                   std::span<const MeasuredOp> cases, const config::Hardware& prior,
                                   config::Hardware& hardware);

}  // namespace kvcast::calibrate
