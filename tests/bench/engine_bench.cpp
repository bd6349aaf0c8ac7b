// Throughput of the engine on graphs like a decode step's, on one core, beside that of a bare event loop
// (yardstick.hpp).
//
//   engine_bench [--benchmark_min_time=2]
//
// The name of a benchmark states how many ops are active on average (started and not finished) and whether ops share
// works: "shared works" draws the sizes of layers from 64, "own works" has new works for every layer. ops_per_s:
// finished ops a second, generation of the graph included. active: the measured mean; working: mean number of ops
// that are past their latency and hold their fifos. vs_queue: the engine's time relative to the reference. "lanes
// waiting for one fifo" has 200,000 ops with the same demand on the given number of lanes.
#include <benchmark/benchmark.h>

#include <string>

#include "base/random.hpp"
#include "base/system_memory.hpp"
#include "bench/yardstick.hpp"
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

// Load of the streams other than the compute stream.
struct Side {
  double bytes;  // scale of selection, recall and backup
  int lead;      // the attention this many layers later waits for a recall
};

// The works of a layer, in order of their ids.
enum LayerWork : WorkId { kLaunch, kQkv, kRank, kAttention, kTask, kRecall, kOut, kMlp, kPage, kPageOut, kLayerWorks };
constexpr WorkId kToken = 0;  // followed by those of the layers

// Decode steps of a policy with recall. A layer: four kernels in sequence, launched by the host; a selection on
// its own stream; a copy of pages from host memory, on two streams in turn, that a later layer's attention waits for; a
// backup.
class DecodeSteps final : public OpSource {
 public:
  DecodeSteps(int steps, int layers, Side side, bool share)
      : steps_(steps), layers_(layers), side_(side), share_(share) {}

  bool next_block(OpBlock& out) override {
    out.clear();
    if (steps_-- == 0) return false;
    out_ = &out;
    if (next_ == 0) add_first_works();
    const OpId gate = next_ - 1;
    copies_.assign(static_cast<std::size_t>(side_.lead), gate);
    for (int layer = 0; layer < layers_; ++layer) add_layer(gate);
    // The token: joins what the next step needs.
    add(kHost, kToken, {last_[kCompute], copies_.back()});
    return true;
  }

 private:
  static constexpr std::uint64_t kSizes = 64;

  void add_work(double latency_us, std::initializer_list<Demand> demands) {
    out_->add_work(latency_us * kUs);
    for (const Demand& demand : demands) out_->add_demand(demand.resource, demand.amount);
    ++works_;
  }

  void add_first_works() {
    add_work(0.5, {});
    for (std::uint64_t size = 0; share_ && size < kSizes; ++size) add_layer_works(static_cast<double>(size) / kSizes);
  }

  // Every size differs a little, so that ends rarely coincide; `uniform` in [0, 1).
  void add_layer_works(double uniform) {
    const double jitter = 0.8 + 0.4 * uniform;
    const double bytes = 1e4 * side_.bytes * jitter;
    add_work(2 * jitter, {});
    add_work(1.5, {{kHbm, 20e6 * jitter}, {kTensor, 2e9}});
    add_work(1.5, {{kHbm, 30 * bytes}});
    add_work(2, {{kHbm, 8e6 * jitter}, {kTensor, 1e8}});
    add_work(1 * jitter, {});
    add_work(1, {{kH2d, bytes}, {kDram, bytes}});
    add_work(1.5, {{kHbm, 12e6 * jitter}, {kTensor, 1e9}});
    add_work(1.5, {{kHbm, 60e6 * jitter}, {kTensor, 8e9}});
    add_work(0.5, {});
    add_work(1, {{kD2h, bytes}, {kDram, bytes}, {kHbm, bytes}});
  }

  OpId add(LaneId lane, WorkId work, std::initializer_list<OpId> after) {
    out_->add_op(lane, work);
    for (const OpId id : after) {
      if (id >= 0) out_->add_after(id);
    }
    return last_[lane] = next_++;
  }

  void add_layer(OpId gate) {
    const auto draw = static_cast<std::uint64_t>(next_);
    WorkId first = works_;
    if (share_) {
      first = kToken + 1 + static_cast<WorkId>(sizes_.below(draw, kSizes)) * kLayerWorks;
    } else {
      add_layer_works(sizes_.uniform(draw));
    }
    const OpId recalled = copies_[copies_.size() - static_cast<std::size_t>(side_.lead)];
    const OpId launch = add(kHost, first + kLaunch, {gate});
    const OpId qkv = add(kCompute, first + kQkv, {launch});
    const OpId rank = add(kSelect, first + kRank, {qkv});
    const OpId attention = add(kCompute, first + kAttention, {qkv, recalled});
    const OpId task = add(kRecallThread, first + kTask, {rank});
    copies_.push_back(add(copies_.size() % 2 == 0 ? kCopyA : kCopyB, first + kRecall, {task}));
    const OpId out = add(kCompute, first + kOut, {attention});
    add(kCompute, first + kMlp, {out});
    const OpId page = add(kBackupThread, first + kPage, {attention});
    add(kBackup, first + kPageOut, {page});
  }

  int steps_, layers_;
  Side side_;
  bool share_;
  Stream sizes_{7};
  OpBlock* out_ = nullptr;
  std::vector<OpId> copies_;  // of the step
  OpId next_ = 0;
  WorkId works_ = 0;
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

void decode_steps(benchmark::State& state, Side side, bool share) {
  constexpr int kSteps = 500, kLayers = 32;
  const System system = gpu();
  BusyTime busy;
  DecodeSteps observed(kSteps / 10, kLayers, side, share);
  const double makespan = static_cast<double>(run(system, observed, &busy).makespan);

  std::int64_t ops = 0, events = 0;
  double seconds = 0, queue = 0;
  for (auto _ : state) {
    DecodeSteps source(kSteps, kLayers, side, share);
    const double begin = cpu_seconds();
    const Outcome outcome = run(system, source, nullptr);
    const double taken = cpu_seconds() - begin;
    state.SetIterationTime(taken);
    seconds += taken;
    ops += outcome.ops;
    events += outcome.events;
    queue += queue_seconds(outcome.events, kLanes);
  }
  state.counters["ops_per_s"] = static_cast<double>(ops) / seconds;
  state.counters["active"] = busy.active / makespan;
  state.counters["working"] = busy.working / makespan;
  state.counters["queue_events_per_s"] = static_cast<double>(events) / queue;
  state.counters["vs_queue"] = seconds / queue;
}

// All lanes wait for one fifo, each with several ops.
void long_queue(benchmark::State& state) {
  const auto lanes = static_cast<std::uint16_t>(state.range(0));
  constexpr std::int64_t kOps = 200'000;
  System system;
  system.resources = {{"fifo", kPicosPerSecond, Sharing::kFifo}};
  system.lanes.assign(lanes, "lane");
  OpBlock block;
  block.add_work(1 * kUs);
  block.add_demand(0, 0.3 * kUs);
  for (std::int64_t i = 0; i < kOps; ++i) block.add_op(static_cast<std::uint16_t>(i % lanes), 0);
  std::int64_t ops = 0;
  double seconds = 0;
  for (auto _ : state) {
    OneBlock source(block);
    const double begin = cpu_seconds();
    ops += run(system, source, nullptr).ops;
    const double taken = cpu_seconds() - begin;
    state.SetIterationTime(taken);
    seconds += taken;
  }
  state.counters["ops_per_s"] = static_cast<double>(ops) / seconds;
}

void add_benchmarks(const char* name, Side side) {
  for (const bool share : {true, false}) {
    const std::string full = std::string(name) + (share ? ", shared works" : ", own works");
    benchmark::RegisterBenchmark(full.c_str(), decode_steps, side, share)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::keep_freed_memory();
  add_benchmarks("1.1 active", {3, 1});
  add_benchmarks("1.5 active", {26, 2});
  add_benchmarks("3 active", {160, 16});
  add_benchmarks("3 active, long queue of copies", {250, 30});
  benchmark::RegisterBenchmark("lanes waiting for one fifo", long_queue)
      ->Arg(4)
      ->Arg(400)
      ->Arg(40'000)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
