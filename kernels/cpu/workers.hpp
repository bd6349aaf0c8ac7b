// Two workers that run the ops of a decode step: dense work on one, transfers or CPU attention on the other, each on a
// core of its own. They wait for each other without yielding the cores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcast::kernels {

enum class WorkKind {
  kDense,  // streams weights or a cache
  kMove,   // gathers pages, then spreads their rows: recall and layout conversion
  kRows,   // reads rows at random and multiplies each by a query: attention on the CPU
};
inline constexpr int kWorkers = 2;

struct WorkerOp {
  int worker = 0;
  WorkKind kind = WorkKind::kDense;
  double bytes = 0;
  std::vector<int> after;  // earlier ops
};

struct Pipeline {
  std::vector<WorkerOp> ops;   // a worker runs its own ops in this order
  std::vector<int> step_ends;  // last op of each step
  // Appends an op and returns its number.
  int add(int worker, WorkKind kind, double bytes, std::vector<int> after);
};

// Memory that pipelines work on: weights to stream, scattered pages, and rows that are copied to a cache.
class WorkerMemory {
 public:
  explicit WorkerMemory(std::size_t bytes);  // of weights and of pages each
  // Does the op's work, each time at another location. Two workers may call it at once.
  void work(const WorkerOp& op);
  // Checksum of everything read, which keeps the compiler from removing the work.
  std::uint64_t checksum() const { return sum_; }

 private:
  void stream(std::size_t bytes);
  void move(std::size_t bytes);
  void rows(std::size_t bytes);

  std::vector<std::uint64_t> weights_, pool_, staging_, cache_;
  std::atomic<std::uint64_t> sum_{0};
  // Start of the next op: an op reuses a location only after the whole memory has been passed over, so that no run
  // finds in the caches what an earlier one left there.
  std::atomic<std::size_t> next_word_{0}, next_page_{0}, next_row_{0};
};

// Measurements of one run of a pipeline.
struct WorkersRun {
  std::vector<double> steps;    // seconds of each step
  std::vector<bool> disturbed;  // whether the system took a core away from a worker during the step
  std::vector<double> op_ends;  // seconds from the start, by op
};
WorkersRun run_workers(const Pipeline& pipeline, WorkerMemory& memory);

}  // namespace kvcast::kernels
