// A point of a study: one configuration, and the outputs requested for it.
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "config/yaml.hpp"
#include "simulate/experiment.hpp"
#include "study/service.hpp"

namespace kvcast::study {

struct Ask {
  // Sensitivities of the times to uncertain costs. With kDetailed, the largest batch is searched again with more and
  // with less memory.
  simulate::Effects effects = simulate::Effects::kTimes;
  // Keep the outcome that would decide otherwise whether the experiment fits, with more or less memory, as an
  // alternative. Whether there is one is known in any case (Result::borderline).
  bool fit_effects = false;
  // For a run on several traces, timelines are of the first one.
  bool timeline = false;                 // keep the spans of one decode step
  std::ostream* chrome_trace = nullptr;  // write the middle decode window as a Chrome trace
  // Above 0: simulate the largest batch up to this one that fits in memory and that the engine serves; 1 if none does.
  // With several traces the batch fits on each of them and is the same for all.
  int largest_batch = 0;
  // Called with every request that ends; of a run with traffic.
  RequestLog requests;
  serving::QueueObserver* observer = nullptr;  // sees that run's queue; may be null
  // Above 0: build the index of this many KV heads of one layer and run nothing else.
  int index_heads = 0;
  SourceLocation index_heads_at;
};

struct Point {
  config::Node config;  // of a run
  // The values that distinguish the point in its sweep: dotted key and value as text.
  std::vector<std::pair<std::string, std::string>> swept;
  Ask ask;
};

}  // namespace kvcast::study
