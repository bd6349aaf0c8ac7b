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

  // Does the op's work; op and worker choose where. Two workers may work at once.
  void work(const PipelineOp& op, std::size_t nth);
  // Of what has been read: keeps the compiler from leaving work out.
  std::uint64_t checksum() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

// Runs the pipeline on two threads. Seconds of each step; op ends in `ends`, seconds from the start, where asked for.
std::vector<double> run_pipeline(const Pipeline& pipeline, PipelineMemory& memory, std::vector<double>* ends = nullptr);

struct PipelineTest {
  int rounds = 9;  // each measures rates and every pipeline once; medians over rounds are compared
  int layers = 4;
  int steps = 10;
  int warmup = 3;    // steps at the start that do not count
  double scale = 1;  // of all bytes
};

// Measures rates and pipelines in turn and compares. Takes seconds to a minute; a busy machine shows as spread.
Suite cpu_pipeline(const PipelineTest& test = {});
// The same on a GPU is not measured yet: says so, and how to.
Suite gpu_pipeline();

}  // namespace kvcast::validate
