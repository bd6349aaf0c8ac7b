// Decode steps of two workers, and the rates of their work alone: what an engine needs to predict the steps. Each round
// measures the rates, the dense work without the second worker, and the pipeline, so that drift between rounds (clocks,
// other users of the machine) affects all of them. Rates come from single ops that alternate with dense work, never
// from a pipeline.
#include <algorithm>
#include <chrono>
#include <optional>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "cpu/workers.hpp"

namespace kvcast::kernels {

namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kUnit = 0.5 * kMiB;    // ops take far longer than their start and end
constexpr double kMemory = 192 * kMiB;  // of weights and of pages each: more than the caches hold
// Dense work of a layer, in units: before attention, in attention, after it.
constexpr double kBefore = 6, kAttention = 4, kAfter = 14, kLayerDense = kBefore + kAttention + kAfter;
constexpr int kSteps = 24, kWarmup = 4;  // those at the start are not counted
constexpr double kLarge = 8;             // the larger size that a rate is measured at, over the smaller
constexpr int kLargeOps = 24;
// A median of fewer undisturbed steps is meaningless.
constexpr std::size_t kLeastSamples = 5;
constexpr int kLeastRounds = 3;

enum class Scheme {
  kSpeculative,  // FreeKV: the pages that a layer attends to have been recalled since the previous step
  kBlocking,     // the recall precedes attention
  kCpu,          // CTkvr: rows are searched during the static attention; the next op waits for both
};

struct Shape {
  Scheme scheme = Scheme::kSpeculative;
  double unit = kUnit, moved = 0;  // bytes of the second worker in each layer; 0: it has no work
  int layers = 2, steps = kSteps;
  WorkKind kind() const { return scheme == Scheme::kCpu ? WorkKind::kRows : WorkKind::kMove; }
};

// Adds the step's layers; `recalled` contains each layer's last op of the second worker, −1 at first.
int add_step(Pipeline& out, const Shape& shape, std::vector<int>& recalled) {
  const auto dense = [&](double units, std::vector<int> after) {
    return out.add(0, WorkKind::kDense, units * shape.unit, std::move(after));
  };
  const auto second = [&](int after) { return out.add(1, shape.kind(), shape.moved, {after}); };
  const bool moves = shape.moved > 0;
  int last = -1;
  for (int& moved : recalled) {
    const int before = dense(kBefore, {});
    std::vector<int> needed, joined;
    if (moves && shape.scheme == Scheme::kBlocking) needed = {second(before)};
    if (moved >= 0) needed = {moved};
    if (moves && shape.scheme == Scheme::kCpu) joined = {second(before)};
    const int attended = dense(kAttention, needed);
    if (moves && shape.scheme == Scheme::kSpeculative) moved = second(attended);
    last = dense(kAfter, joined);
  }
  return last;
}

Pipeline pipeline_of(const Shape& shape) {
  Pipeline out;
  std::vector<int> recalled(static_cast<std::size_t>(shape.layers), -1);
  for (int s = 0; s < shape.steps; ++s) out.step_ends.push_back(add_step(out, shape, recalled));
  return out;
}

// Empty if too few samples are left.
std::optional<double> median(const std::vector<double>& samples) {
  return samples.size() < kLeastSamples ? std::nullopt : std::optional(quantile(samples, 0.5));
}

std::optional<double> step_seconds(const Pipeline& pipeline, int warmup, WorkerMemory& memory) {
  const WorkersRun run = run_workers(pipeline, memory);
  std::vector<double> kept;
  for (std::size_t i = static_cast<std::size_t>(warmup); i < run.steps.size(); ++i) {
    if (!run.disturbed[i]) kept.push_back(run.steps[i]);
  }
  return median(kept);
}

// Seconds until a waiting worker continues.
std::optional<double> hand_over_seconds(WorkerMemory& memory) {
  constexpr int kTurns = 200;
  Pipeline p;
  for (int i = 0; i < kTurns; ++i) {
    p.step_ends.push_back(p.add(i % 2, WorkKind::kRows, 256, i > 0 ? std::vector{i - 1} : std::vector<int>{}));
  }
  return step_seconds(p, kTurns / 10, memory);
}

// Seconds of a dense op back to back with others of the same kind. The measurement takes equally long for ops of any
// size: the first millisecond after other work is slower, which is not part of an op in a pipeline.
std::optional<double> dense_seconds(double bytes, double all_bytes, WorkerMemory& memory) {
  const int count = static_cast<int>(all_bytes / bytes);
  Pipeline p;
  for (int i = 0; i < count; ++i) p.step_ends.push_back(p.add(0, WorkKind::kDense, bytes, {}));
  return step_seconds(p, count / 3, memory);
}

// Seconds of an op of the second worker that has waited for dense work: as in a pipeline, it finds in the caches what
// such work leaves there, not what the op before it read. Also those of the first worker's dense work during the op, if
// there is any.
struct Waited {
  std::optional<double> op, concurrent;
};
Waited waited_seconds(WorkKind kind, double bytes, double concurrent_bytes, double hand_over, WorkerMemory& memory) {
  Pipeline p;
  for (int i = 0; i < kSteps; ++i) {
    const int dense = p.add(0, WorkKind::kDense, kLayerDense * kUnit, {});
    if (!p.step_ends.empty()) p.ops.back().after = {p.step_ends.back()};
    if (concurrent_bytes > 0) p.add(0, WorkKind::kDense, concurrent_bytes, {});
    p.step_ends.push_back(p.add(1, kind, bytes, {dense}));
  }
  const WorkersRun run = run_workers(p, memory);
  const std::size_t ops = concurrent_bytes > 0 ? 3 : 2;
  std::vector<double> op, concurrent;
  for (std::size_t i = kWarmup; i < kSteps; ++i) {
    if (run.disturbed[i]) continue;
    const double* const ends = &run.op_ends[ops * i];
    op.push_back(ends[ops - 1] - ends[0] - hand_over);
    if (concurrent_bytes > 0) concurrent.push_back(ends[1] - ends[0]);
  }
  return {median(op), median(concurrent)};
}

// The time of an op is its start plus its bytes over the rate.
struct Rate {
  double start = 0, bytes_per_s = 0;
};
std::optional<Rate> rate_of(std::optional<double> little, std::optional<double> much) {
  if (!little || !much || *much <= *little) return std::nullopt;
  // An op whose small size is no slower per byte than its large one has no start.
  const double rate = (kLarge - 1) * kUnit / (*much - *little), start = *little - kUnit / rate;
  return start > 0 ? Rate{start, rate} : Rate{0, kLarge * kUnit / *much};
}

// Numbers of one round, in the order of kNames: start and rate of both workers' ops, the share of their speed that an
// op and dense work of the same duration retain when they run together, the hand-over, and a step of dense work alone.
constexpr const char* kNames[] = {"first_start_s", "first_bytes_per_s", "second_start_s", "second_bytes_per_s",
                                  "together",      "hand_over_s",       "alone_s"};
std::optional<std::vector<double>> measure_rates(const Shape& shape, WorkerMemory& memory) {
  const std::optional<double> hand_over = hand_over_seconds(memory);
  if (!hand_over) return std::nullopt;
  const double large = kLarge * kUnit, all = kLargeOps * large;
  const auto first = rate_of(dense_seconds(kUnit, all, memory), dense_seconds(large, all, memory));
  const auto waited = [&](double bytes, double concurrent) {
    return waited_seconds(shape.kind(), bytes, concurrent, *hand_over, memory);
  };
  const std::optional<double> small_op = waited(kUnit, 0).op;
  const auto second = rate_of(small_op, waited(large, 0).op);
  if (!first || !second) return std::nullopt;
  const double op = second->start + kUnit / second->bytes_per_s;
  const Waited pair = waited(kUnit, op * first->bytes_per_s);
  Shape alone = shape;
  alone.moved = 0;
  const std::optional<double> dense = step_seconds(pipeline_of(alone), kWarmup, memory);
  if (!pair.op || !pair.concurrent || !dense) return std::nullopt;
  // One share slows both equally; if one is slowed more, it is the one that a step waits for.
  const double together = std::min(1.0, op / std::max(*pair.op, *pair.concurrent));
  return std::vector{first->start, first->bytes_per_s, second->start, second->bytes_per_s,
                     together,     *hand_over,         *dense};
}

void measure(State& state, const Shape& shape) {
  WorkerMemory memory(static_cast<std::size_t>(kMemory));
  Sampler sampler(state.limits());
  std::vector<std::vector<double>> numbers(std::size(kNames));
  const auto begin = std::chrono::steady_clock::now();
  double elapsed = 0;
  int tried = 0;
  do {
    ++tried;
    const auto rates = measure_rates(shape, memory);
    const auto step = rates ? step_seconds(pipeline_of(shape), kWarmup, memory) : std::nullopt;
    if (step) {
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i].push_back((*rates)[i]);
      sampler.add(*step, kSteps - kWarmup);
    }
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } while (!sampler.done(elapsed) && elapsed < 2 * state.limits().timeout);
  const int kept = static_cast<int>(numbers[0].size());
  state.note("rounds", kept);
  state.note("rounds_disturbed", tried - kept);
  if (kept < kLeastRounds) return state.skip("other programs took the cores away");
  for (std::size_t i = 0; i < numbers.size(); ++i) state.work(kNames[i], quantile(numbers[i], 0.5));
  state.record(sampler);
}

void check(State& state, const Shape& shape) {
  WorkerMemory memory(1 << 20);
  const Pipeline p = pipeline_of(shape);
  const WorkersRun run = run_workers(p, memory);
  bool ordered = true;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    for (const int id : p.ops[i].after)
      ordered = ordered && run.op_ends[static_cast<std::size_t>(id)] <= run.op_ends[i];
  }
  state.require(ordered, "every op ends after those that it waits for");
  state.require(run.steps.size() == kSteps && memory.checksum() > 0, "every step is run");
}

void run(State& state) {
  if (too_many_threads(state.machine(), kWorkers)) return state.skip("more threads than cores");
  Shape shape;
  const std::string& scheme = state.word("scheme");
  if (scheme != "speculative" && scheme != "blocking" && scheme != "cpu") {
    throw UsageError("scheme: '" + scheme + "' is neither speculative, blocking nor cpu");
  }
  shape.scheme = scheme == "cpu" ? Scheme::kCpu : scheme == "blocking" ? Scheme::kBlocking : Scheme::kSpeculative;
  shape.moved = static_cast<double>(state.integer("moved"));
  if (state.checking()) shape.unit = 4096;
  shape.layers = static_cast<int>(state.integer("layers"));
  state.work("before_bytes", kBefore * shape.unit);
  state.work("attention_bytes", kAttention * shape.unit);
  state.work("after_bytes", kAfter * shape.unit);
  if (state.checking()) return check(state, shape);
  measure(state, shape);
}

}  // namespace

Bench cpu_overlap(const Machine&) {
  return {"cpu_overlap",
          "a decode step of two workers, and the rates of their ops; moved: bytes of the second one in each layer",
          {words("scheme", {"speculative", "blocking", "cpu"}),
           numbers("moved", {0, static_cast<std::int64_t>(kUnit), static_cast<std::int64_t>(4 * kUnit),
                             static_cast<std::int64_t>(12 * kUnit)}),
           numbers("layers", {2})},
          {numbers("moved", {0, 32768})},
          {Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels
