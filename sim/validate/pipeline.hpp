// A decode step as two workers run it: dense work on one, transfers or CPU attention on the other, with the dependences
// of the systems modelled. The same list of ops is run by threads (cpu_pipeline.cpp) and by the engine.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace kvcast::validate {

enum class WorkKind : unsigned char {
  kDense,  // streams weights or a cache
  kMove,   // gathers pages, then spreads their rows: recall and layout conversion
  kRows,   // reads rows at random, each multiplied with a query: attention on the CPU
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
  std::vector<PipelineOp> ops;  // a worker runs its own in this order
  std::vector<int> step_ends;   // last op of each step
  double moved_bytes = 0;       // by the second worker, a step
};

// Bytes of a layer's parts: before attention, the attention itself, after it; and what the second worker does.
struct LayerBytes {
  double before = 0, attention = 0, after = 0, moved = 0;
};

enum class Scheme : unsigned char {
  kAlone,        // nothing is moved
  kSpeculative,  // FreeKV: what a layer attends to was recalled since the step before
  kBlocking,     // the recall stands before attention
  kBeside,       // CTkvr: rows are searched beside the static attention; what follows waits for both
};
Pipeline make_pipeline(Scheme scheme, const LayerBytes& bytes, int layers, int steps);

// What the model needs of a machine.
struct PipelineRates {
  std::array<double, kWorkKinds> bytes_per_s{};  // alone
  std::array<double, kWorkKinds> start{};        // seconds of an op besides
  std::array<double, kWorkKinds> together{};     // share of it that is left beside dense work on the first worker
  double hand_over = 0;                          // seconds until a worker that waits goes on

  // Of an op alone.
  double seconds(WorkKind kind, double bytes) const {
    const auto k = static_cast<std::size_t>(kind);
    return start[k] + bytes / bytes_per_s[k];
  }
};

// Seconds of each step, by the engine.
std::vector<double> predict_steps(const Pipeline& pipeline, const PipelineRates& rates);

}  // namespace kvcast::validate
