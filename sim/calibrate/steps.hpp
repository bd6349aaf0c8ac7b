// Fit of three numbers to measured times of whole steps and prefills of one's own engine on one's own machine: the
// shares of the machine's rates of memory and of products that its kernels reach, and the host's time between steps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast::calibrate {

// One measured setting.
struct StepRow {
  SourceLocation where;
  int batch = 1;
  std::int64_t prompt_tokens = 0, output_tokens = 128;
  double tpot_s = 0, ttft_s = 0;  // mean over the output tokens; until the last prompt's first token. 0: not measured
};

// Reads rows from CSV: columns batch, context, and tpot_ms or ttft_ms or both, of which a cell may be empty; optional
// output_tokens. From a .json file of vLLM's serving benchmark: one row, with its median_itl_ms (mean_tpot_ms if there
// is none) at max_concurrency sequences, and its TTFT if that is one. Throws UserError for anything else.
std::vector<StepRow> read_step_rows(const std::string& path);

// A measured time, and what the model has for it.
struct MeasuredTime {
  std::size_t row = 0;   // times of one row are left out together
  bool prefill = false;  // a TTFT, not a TPOT
  double measured = 0;   // seconds
  double predicted = 0;  // seconds, on the machine as it is
  // Seconds of `predicted` in inverse proportion to each rate, and passes that wait for the host: the derivatives.
  double memory = 0, products = 0, passes = 0;
};

struct StepScales {
  double memory = 1, products = 1;  // factors on the rates
  double host_s = 0;                // in addition between two steps
};

// predicted + memory (1 / scales.memory - 1) + products (1 / scales.products - 1) + passes host_s
double scaled_time(const MeasuredTime& time, const StepScales& scales);

// The belief before any time is seen: scales of 1, 1 and 0, within these widths.
struct StepPriors {
  double rates = 0.2;       // of the logarithms of both rates
  double host_s = 1e-3;     // of the time between steps
  double least_host_s = 0;  // the lowest that host_s can be: minus what the framework has
};

struct StepFit {
  StepScales scales, half_widths;               // half_widths: 80 %, of the rates' logarithms and of host_s
  std::vector<double> before, after, left_out;  // log(predicted / measured), one a time
  std::vector<std::string> kept;                // numbers that the times do not reach, by name
  double interval = 0;                          // half-width of 80 % intervals, of a time's logarithm
  bool better() const;                          // the mean |left_out| is below the mean |before|
};

// Minimises the loss of calibrate/solve.hpp over the times, in which a belief counts as one time that is off by 3 %
// where its number is off by a width. `left_out` is predicted from the times of all other rows; `interval` is the
// quantile ceil((n + 1) 80 %) of their sizes, at least 3 %, and that of the priors' rates if n < 4. Throws UserError
// for fewer than two rows.
StepFit fit_steps(std::span<const MeasuredTime> times, const StepPriors& priors);

}  // namespace kvcast::calibrate
