// Suite `cpu_pipeline`: does the engine predict how two workers of this machine overlap?
#pragma once

#include <memory>
#include <vector>

#include "validate/pipeline.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Memory that pipelines work on: weights to stream, scattered pages, and rows that are copied to a cache.
class PipelineMemory {
 public:
  // pool_bytes: size of the scattered pages; the largest op may stream up to weights_bytes.
  PipelineMemory(std::size_t weights_bytes, std::size_t pool_bytes);
  ~PipelineMemory();
  PipelineMemory(const PipelineMemory&) = delete;
  PipelineMemory& operator=(const PipelineMemory&) = delete;

  // Does the op's work, each time at another location. Two workers may call it at once.
  void work(const PipelineOp& op);
  // Checksum of everything read, which keeps the compiler from removing the work.
  std::uint64_t checksum() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

// Measurements of one run of a pipeline.
struct PipelineRun {
  std::vector<double> steps;    // seconds of each step
  std::vector<bool> disturbed;  // whether the system took a core away from a worker during the step
  std::vector<double> op_ends;  // seconds from the start, by op
};
// Runs the pipeline on two threads, each on a core of its own, which wait for each other without yielding the cores.
PipelineRun run_pipeline(const Pipeline& pipeline, PipelineMemory& memory);

struct PipelineTest {
  int rounds = 60;  // each measures rates and every pipeline once, and predicts the pipelines from the rates
  int layers = 2;
  int steps = 24;
  int warmup = 4;           // steps at the start that are not counted
  double scale = 0.5;       // of all bytes: makes ops far longer than their start and end
  double memory_mib = 192;  // of weights and of pages each: more than the caches hold
};

// Alternates measurements of rates and pipelines, then compares; takes most of a minute. Steps during which the system
// took a core away are dropped and counted; if too few are left, nothing is judged and the status says so.
Suite cpu_pipeline(const PipelineTest& test = {});

}  // namespace kvcast::validate
