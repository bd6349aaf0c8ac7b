// The criterion to stop sampling.
#pragma once

#include <vector>

#include "harness/stats.hpp"

namespace kvcast::kernels {

struct Limits {
  int min_samples = 10;
  double min_time = 0.2;     // seconds of measured time
  double max_noise = 0.005;  // relative standard deviation that is good enough
  double timeout = 3;        // seconds of wall time, set-up between the samples included
};

enum class Stop { kNoise, kSettled, kTimeout };
const char* stop_name(Stop stop);

// The rule of nvbench's "stdrel": enough samples and enough time, and then either the noise is small, or it no longer
// changes (spread of the last 64 noise values below 5 %), so that more samples would not add information.
class Sampler {
 public:
  explicit Sampler(const Limits& limits) : limits_(limits) {}
  // Adds the seconds of one call, the mean over this many of them. elapsed: seconds of wall time since sampling began.
  void add(double seconds, int calls = 1);
  bool done(double elapsed);

  Stop why() const { return why_; }
  const std::vector<double>& samples() const { return samples_; }

 private:
  bool settled() const;
  Limits limits_;
  Running running_;
  double measured_ = 0;  // seconds of all calls
  std::vector<double> samples_;
  std::vector<double> noises_;
  Stop why_ = Stop::kTimeout;
};

}  // namespace kvcast::kernels
