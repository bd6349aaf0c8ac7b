// How many ops a second the engine runs on graphs like a decode step's, on one core. Beside it, as a yardstick, the
// plainest event loop there is: a std::priority_queue that pops and pushes the same number of events and does nothing
// else.
//
//   engine_bench [--benchmark_min_time=2]
//
// ops_per_s: finished ops a second, the making of the graph included. active: mean number of ops started and not
// finished; working: of those that are past their latency and hold their fifos. vs_queue: the engine's time over the
// plain loop's.
#include <benchmark/benchmark.h>

#include <ctime>
#include <queue>

#include "base/random.hpp"
#include "engine/engine.hpp"

namespace {

using namespace kvcast;
using namespace kvcast::engine;

constexpr double kUs = 1e6;  // picoseconds

enum LaneId : std::uint16_t { kHost, kRecallThread, kBackupThread, kCompute, kSelect, kCopyA, kCopyB, kBackup, kLanes };
enum ResourceId : std::uint16_t { kHbm, kTensor, kDram, kH2d, kD2h, kResources };

System gpu() {
  System system;
  system.resources = {{"hbm", 1.5e12, Sharing::kFair},
                      {"tensor", 3e14, Sharing::kFair},
                      {"dram", 1.5e11, Sharing::kFair},
                      {"h2d", 2.5e10, Sharing::kFifo},
                      {"d2h", 2.5e10, Sharing::kFifo}};
  system.lanes = {"host", "recall thread", "backup thread", "compute", "select", "copy A", "copy B", "backup"};
  return system;
}

// How busy the streams beside the compute stream are.
struct Side {
  double bytes;  // scale of selection, recall and backup
  int lead;      // a recall is waited for by the attention of the layer this many layers on
};
constexpr Side kSides[] = {{3, 1}, {26, 2}, {160, 16}, {250, 30}};

// Decode steps of a policy with recall. A layer: four kernels behind one another, launched by the host; a selection on
// its own stream; a copy of pages from host memory, on two streams in turn, that a later layer's attention waits for; a
// backup.
class DecodeSteps final : public OpSource {
 public:
  DecodeSteps(int steps, int layers, Side side) : steps_(steps), layers_(layers), side_(side) {}

  bool next_block(std::vector<Op>& out) override {
    out.clear();
    if (steps_-- == 0) return false;
    out_ = &out;
    const OpId gate = next_ - 1;
    copies_.assign(static_cast<std::size_t>(side_.lead), gate);
    for (int layer = 0; layer < layers_; ++layer) add_layer(gate);
    // The token: joins what the next step needs.
    add(kHost, 0.5, {}, {last_[kCompute], copies_.back()});
    return true;
  }

 private:
  OpId add(LaneId lane, double latency_us, std::initializer_list<Demand> demands, std::initializer_list<OpId> after) {
    Op& op = out_->emplace_back();
    op.lane = lane;
    op.latency = latency_us * kUs;
    op.demands.assign(demands.begin(), demands.end());
    for (const OpId id : after) {
      if (id >= 0) op.after.push_back(id);
    }
    return last_[lane] = next_++;
  }

  void add_layer(OpId gate) {
    // Every size differs a little, so that ends rarely coincide.
    const double jitter = 0.8 + 0.4 * sizes_.uniform(static_cast<std::uint64_t>(next_));
    const double bytes = 1e4 * side_.bytes * jitter;
    const OpId recalled = copies_[copies_.size() - static_cast<std::size_t>(side_.lead)];
    const OpId launch = add(kHost, 2 * jitter, {}, {gate});
    const OpId qkv = add(kCompute, 1.5, {{kHbm, 20e6 * jitter}, {kTensor, 2e9}}, {launch});
    const OpId select = add(kSelect, 1.5, {{kHbm, 30 * bytes}}, {qkv});
    const OpId attention = add(kCompute, 2, {{kHbm, 8e6 * jitter}, {kTensor, 1e8}}, {qkv, recalled});
    const OpId task = add(kRecallThread, 1 * jitter, {}, {select});
    copies_.push_back(add(copies_.size() % 2 == 0 ? kCopyA : kCopyB, 1, {{kH2d, bytes}, {kDram, bytes}}, {task}));
    const OpId out = add(kCompute, 1.5, {{kHbm, 12e6 * jitter}, {kTensor, 1e9}}, {attention});
    add(kCompute, 1.5, {{kHbm, 60e6 * jitter}, {kTensor, 8e9}}, {out});
    const OpId page = add(kBackupThread, 0.5, {}, {attention});
    add(kBackup, 1, {{kD2h, bytes}, {kDram, bytes}, {kHbm, bytes}}, {page});
  }

  int steps_, layers_;
  Side side_;
  Stream sizes_{7};
  std::vector<Op>* out_ = nullptr;
  std::vector<OpId> copies_;  // of the step
  OpId next_ = 0;
  OpId last_[kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
};

// Time for which ops are active.
struct BusyTime final : Observer {
  void finished(const Record& record) override {
    active += static_cast<double>(record.finish - record.start);
    working += static_cast<double>(record.finish - record.work_start);
  }
  double active = 0, working = 0;
};

// Of this thread: what else runs on the machine does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The same number of events through a bare queue of the same depth.
double queue_seconds(std::int64_t events) {
  const double begin = cpu_seconds();
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> queue;
  const Stream stream(3);
  for (int lane = 0; lane < kLanes; ++lane) queue.emplace(stream.uniform(static_cast<std::uint64_t>(lane)), lane);
  for (std::int64_t i = 0; i < events; ++i) {
    const auto [time, lane] = queue.top();
    queue.pop();
    queue.emplace(time + stream.uniform(static_cast<std::uint64_t>(i)), lane);
  }
  benchmark::DoNotOptimize(queue.top().first);
  return cpu_seconds() - begin;
}

void decode_steps(benchmark::State& state) {
  const Side side = kSides[state.range(0)];
  constexpr int kSteps = 500, kLayers = 32;
  const System system = gpu();
  BusyTime busy;
  DecodeSteps observed(kSteps / 10, kLayers, side);
  const double makespan = static_cast<double>(run(system, observed, &busy).makespan);

  std::int64_t ops = 0, events = 0;
  double seconds = 0, queue = 0;
  for (auto _ : state) {
    DecodeSteps source(kSteps, kLayers, side);
    const double begin = cpu_seconds();
    const Outcome outcome = run(system, source, nullptr);
    const double taken = cpu_seconds() - begin;
    state.SetIterationTime(taken);
    seconds += taken;
    ops += outcome.ops;
    events += outcome.events;
    queue += queue_seconds(outcome.events);
  }
  state.counters["ops_per_s"] = static_cast<double>(ops) / seconds;
  state.counters["active"] = busy.active / makespan;
  state.counters["working"] = busy.working / makespan;
  state.counters["queue_events_per_s"] = static_cast<double>(events) / queue;
  state.counters["vs_queue"] = seconds / queue;
}

}  // namespace

BENCHMARK(decode_steps)->ArgName("side")->DenseRange(0, 3)->UseManualTime()->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
