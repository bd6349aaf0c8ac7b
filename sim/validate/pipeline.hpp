// A decode step run by two workers: dense work on one, transfers or CPU attention on the other, with the dependencies
// of the modelled systems. Threads (cpu_pipeline.cpp) and the engine run the same list of ops.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace kvcast::validate {

enum class WorkKind : unsigned char {
  kDense,  // streams weights or a cache
  kMove,   // gathers pages, then spreads their rows: recall and layout conversion
  kRows,   // reads rows at random and multiplies each by a query: attention on the CPU
};
inline constexpr int kWorkKinds = 3;
inline constexpr int kWorkers = 2;

struct PipelineOp {
  int worker = 0;
  WorkKind kind = WorkKind::kDense;
  double bytes = 0;
  std::vector<int> after;  // earlier ops
};

struct Pipeline {
  std::string name;
  std::vector<PipelineOp> ops;  // a worker runs its own ops in this order
  std::vector<int> step_ends;   // last op of each step
};

// Bytes of the parts of a layer: before attention, the attention itself, after it, and the work of the second worker.
struct LayerBytes {
  double before = 0, attention = 0, after = 0, moved = 0;
};

enum class Scheme : unsigned char {
  kAlone,        // nothing is moved
  kSpeculative,  // FreeKV: the pages that a layer attends to have been recalled since the previous step
  kBlocking,     // the recall precedes attention
  kBeside,       // CTkvr: rows are searched during the static attention; the next op waits for both
};
// Appends an op and returns its number.
int append_op(Pipeline& out, int worker, WorkKind kind, double bytes, std::vector<int> after);
Pipeline make_pipeline(Scheme scheme, const LayerBytes& bytes, int layers, int steps);

// Rates of a machine that the model uses.
struct PipelineRates {
  std::array<double, kWorkKinds> bytes_per_s{};  // alone
  std::array<double, kWorkKinds> start{};        // additional seconds of an op
  std::array<double, kWorkKinds> together{};     // share of its speed retained during dense work on the first worker
  double hand_over = 0;                          // seconds until a waiting worker continues

  // Time of an op alone.
  double seconds(WorkKind kind, double bytes) const {
    const auto k = static_cast<std::size_t>(kind);
    return start[k] + bytes / bytes_per_s[k];
  }
};

// Predicts the seconds of each step with the engine.
std::vector<double> predict_steps(const Pipeline& pipeline, const PipelineRates& rates);

}  // namespace kvcast::validate
