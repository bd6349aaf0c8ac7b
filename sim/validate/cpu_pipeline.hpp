// Suite `cpu_pipeline`: does the engine foretell how two workers of this machine overlap?
#pragma once

#include <memory>
#include <vector>

#include "validate/pipeline.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Memory that pipelines work on: weights that are streamed, pages that lie scattered, rows that go to a cache.
class PipelineMemory {
 public:
  // pool_bytes: of the scattered pages; the largest op may stream as much as weights_bytes.
  PipelineMemory(std::size_t weights_bytes, std::size_t pool_bytes);
  ~PipelineMemory();
  PipelineMemory(const PipelineMemory&) = delete;
  PipelineMemory& operator=(const PipelineMemory&) = delete;

  // Does the op's work, each time somewhere else. Two workers may work at once.
  void work(const PipelineOp& op);
  // Of what has been read: keeps the compiler from leaving work out.
  std::uint64_t checksum() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

// What a run of a pipeline saw.
struct PipelineRun {
  std::vector<double> steps;    // seconds of each
  std::vector<bool> disturbed;  // whether the system took a core away from a worker during the step
  std::vector<double> op_ends;  // seconds from the start, by op
};
// Runs the pipeline on two threads, each on a core of its own, which wait for each other without giving them up.
PipelineRun run_pipeline(const Pipeline& pipeline, PipelineMemory& memory);

struct PipelineTest {
  int rounds = 60;  // each measures rates and every pipeline once, and predicts these by those
  int layers = 2;
  int steps = 24;
  int warmup = 4;           // steps at the start that do not count
  double scale = 0.5;       // of all bytes: ops far longer than what starts and ends them
  double memory_mib = 192;  // of weights and of pages each: more than caches hold
};

// Measures rates and pipelines in turn and compares: most of a minute. Steps during which the system took a core away
// are dropped and counted; where too few are left, nothing is judged and the status says so.
Suite cpu_pipeline(const PipelineTest& test = {});

}  // namespace kvcast::validate
