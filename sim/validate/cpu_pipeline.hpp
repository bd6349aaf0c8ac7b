// Suite `cpu_pipeline`: does the engine predict how two workers of a machine overlap?
#pragma once

#include <string>
#include <vector>

#include "validate/suite.hpp"

namespace kvcast::validate {

enum class Scheme : unsigned char {
  kSpeculative,  // FreeKV: the pages that a layer attends to have been recalled since the previous step
  kBlocking,     // the recall precedes attention
  kCpu,          // CTkvr: rows are searched during the static attention; the next op waits for both
};

// Decode steps of two workers: dense work on one, transfers or CPU attention on the other. An op of a worker takes its
// start plus its bytes over the rate.
struct Workers {
  struct Rate {
    double start = 0, bytes_per_s = 1;
  };
  Scheme scheme = Scheme::kSpeculative;
  int layers = 1;
  double before = 0, attention = 0, after = 0, moved = 0;  // bytes of the parts of a layer; moved: the second worker's
  Rate first = {}, second = {};
  double together = 1;   // share of its speed that a worker retains while both are busy
  double hand_over = 0;  // seconds until a waiting worker continues
};

// Predicts the seconds of a step in steady state with the engine.
double predict_step(const Workers& workers);

// results: rows of `kvcast-kernels-cpu --bench cpu_overlap`, which state the rates of the workers' single ops; without
// results the suite states what to run and has no cases. Throws UserError if results are malformed.
Suite cpu_pipeline(const std::string& results);

}  // namespace kvcast::validate
