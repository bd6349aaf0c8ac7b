// The device side of the harness, after nvbench (NVIDIA/nvbench: blocking_kernel.cu, measure_cold.cu, measure_hot.cu):
// a kernel that spins on a host flag holds the stream until all launches of a sample are queued, so that the time
// between the events contains no launch cost; a probe after each sample reads the clock at which it ran.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <stdexcept>

#include "device/async.hpp"
#include "device/fill.hpp"
#include "device/runtime.hpp"
#include "device/system.hpp"

namespace kvcast::kernels {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr unsigned long long kHoldNanoseconds = 1'000'000'000ull;  // queueing takes a few ms
constexpr unsigned long long kProbeNanoseconds = 20'000;
constexpr unsigned long long kBusyNanoseconds = 2'000'000;
// sizes of the L2: lines that survive one size of random traffic are gone after four
constexpr double kFlushedCaches = 4;
constexpr double kSlowShare = 0.75;
// The launch queue takes 1024, as far as is known; a full one would wait for a stream that waits.
constexpr int kMostHeldLaunches = 512, kLeastHeldLaunches = 64;
constexpr double kBatchSeconds = 5e-3;

__device__ unsigned long long global_nanoseconds() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// state[0]: set by the host to release the stream. state[1]: set here if the host did not do so in time.
__global__ void hold_stream(volatile int* state) {
  const unsigned long long begin = global_nanoseconds();
  while (state[0] == 0) {
    if (global_nanoseconds() - begin > kHoldNanoseconds) {
      state[1] = 1;
      __threadfence_system();
      return;
    }
  }
}

// Cycles and nanoseconds between two ticks of the timer, which may be a microsecond apart.
__global__ void probe_clock(unsigned long long* out) {
  unsigned long long begin = global_nanoseconds(), now = begin;
  while (now == begin) now = global_nanoseconds();
  begin = now;
  const long long cycles = clock64();
  while (now - begin < kProbeNanoseconds) now = global_nanoseconds();
  out[0] = static_cast<unsigned long long>(clock64() - cycles);
  out[1] = now - begin;
}

// Work for all multiprocessors, so that an idle device raises its clock.
__global__ void keep_busy() {
  const unsigned long long begin = global_nanoseconds();
  while (global_nanoseconds() - begin < kBusyNanoseconds) continue;
}

// Leaves the L2 as the measured call would over other data: full of lines of which a share, in sixteenths, has been
// written. Each line that the call brings in evicts one, and writes it back if it is dirty: after a flush that writes
// all, a call that only reads would move twice its bytes; after one that only reads, writing would cost nothing.
__global__ void pass_through(Vec16* lines, std::size_t n, unsigned dirty, unsigned* never) {
  unsigned sum = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const Vec16 v = load16(lines + i);
    sum += v.w[0] ^ v.w[1] ^ v.w[2] ^ v.w[3];
    // Eight pieces of 16 bytes per line. A conditional store: lines that were only read must stay clean.
    if ((i / 8 & 15u) < dirty) store16(lines + i, v);
  }
  if (sum == 0x5A5A5A5Au) *never = sum;  // the array is all ones: each piece gives 0
}

class TimedEvent {
 public:
  TimedEvent() { KVCAST_CUDA(cudaEventCreate(&event_)); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  void record(Queue queue) { KVCAST_CUDA(cudaEventRecord(event_, queue)); }
  double since(const TimedEvent& start) const {
    float milliseconds = 0;
    KVCAST_CUDA(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// The current clock of the multiprocessors.
class ClockProbe {
 public:
  ClockProbe() : numbers_(2 * sizeof(unsigned long long)) {}
  double hertz(Queue queue) const {
    probe_clock<<<1, 1, 0, queue>>>(numbers_.device<unsigned long long>());
    KVCAST_CUDA(cudaGetLastError());
    KVCAST_CUDA(cudaStreamSynchronize(queue));
    const unsigned long long* n = numbers_.host<unsigned long long>();
    return static_cast<double>(n[0]) / (static_cast<double>(n[1]) * 1e-9);
  }

 private:
  PinnedMemory numbers_;
};

// Keeps the device busy until it reaches this clock, or for this many seconds; returns the highest clock seen.
double raise_clock(const ClockProbe& probe, Queue queue, double wanted, int blocks, double seconds) {
  const auto begin = Clock::now();
  double best = probe.hertz(queue);
  while (best < wanted && seconds_since(begin) < seconds) {
    keep_busy<<<static_cast<unsigned>(blocks), 256, 0, queue>>>();
    KVCAST_CUDA(cudaGetLastError());
    best = std::max(best, probe.hertz(queue));
  }
  return best;
}

class Stopwatch {
 public:
  Stopwatch(const Machine& machine, const DeviceTiming& timing)
      : timing_(timing),
        full_clock_(reached_clock_hz()),
        blocks_(8 * std::max(machine.sm_count, 1)),
        flags_(2 * sizeof(int)),
        flush_(timing.flush ? static_cast<std::size_t>(kFlushedCaches * machine.l2_bytes / 16) : 0),
        never_(1) {}
  ~Stopwatch() {
    release();  // nothing stays held after an exception
    cudaStreamSynchronize(queue());
  }

  Queue queue() const { return stream_.queue(); }
  void wait() { stream_.synchronize(); }
  void warm_up() { raise_clock(probe_, queue(), kSlowShare * full_clock_, blocks_, 0.3); }
  bool held() const { return held_; }

  // Seconds of one call, with the cache flushed before it.
  double cold(const std::function<void(Queue)>& call) {
    flush();
    if (timing_.waits_for_host || timing_.issue_only) return by_host(call, 1);
    const double seconds = between_events([&] { call(queue()); }, timing_.launches, 1);
    return seconds < 0 ? cold(call) : seconds;
  }

  // Seconds of each of many calls, one after another. The stream is held while the first of them are queued, as many as
  // the queue takes: otherwise short calls would wait for their launches.
  double batch(const std::function<void(Queue)>& call, int calls) {
    if (timing_.issue_only) return by_host(call, 1);  // more would fill the launch queue
    if (timing_.waits_for_host) return by_host(call, calls);
    const int first = std::clamp(most_held_ / std::max(timing_.launches, 1), 1, calls);
    const double seconds = between_events([&] { repeat(call, first); }, timing_.launches * first, calls,
                                          [&] { repeat(call, calls - first); });
    return seconds < 0 ? batch(call, calls) : seconds;
  }

  // Returns whether the device just ran at three quarters of its clock or more.
  bool at_full_clock() {
    clocks_.push_back(probe_.hertz(queue()));
    return clocks_.back() >= kSlowShare * full_clock_;
  }
  const std::vector<double>& clocks() const { return clocks_; }

 private:
  void repeat(const std::function<void(Queue)>& call, int times) {
    for (int i = 0; i < times; ++i) call(queue());
  }
  double by_host(const std::function<void(Queue)>& call, int calls) {
    wait();
    const auto begin = Clock::now();
    repeat(call, calls);
    const double issued = seconds_since(begin);
    wait();
    return (timing_.issue_only ? issued : seconds_since(begin)) / calls;
  }
  volatile int* flags() const { return flags_.host<int>(); }
  void release() { flags()[0] = 1; }

  void flush() {
    if (flush_.size() == 0) return;
    const unsigned dirty = static_cast<unsigned>(std::clamp(16 * timing_.written + 0.5, 0.0, 16.0));
    pass_through<<<static_cast<unsigned>(blocks_), 256, 0, queue()>>>(flush_.data(), flush_.size(), dirty,
                                                                      never_.data());
    KVCAST_CUDA(cudaGetLastError());
  }

  // Negative if the stream was held until it gave up: the queue takes fewer launches, and fewer are held from now on.
  double between_events(
      const std::function<void()>& first, int launches, int calls, const std::function<void()>& then = [] {}) {
    held_ = launches <= most_held_;
    if (held_) {
      flags()[0] = 0;
      flags()[1] = 0;
      hold_stream<<<1, 1, 0, queue()>>>(flags_.device<int>());
      KVCAST_CUDA(cudaGetLastError());
    }
    begin_.record(queue());
    first();
    if (calls == 1) end_.record(queue());
    release();
    then();
    if (calls != 1) end_.record(queue());
    wait();
    if (held_ && flags()[1] != 0) {
      most_held_ = launches / 2;
      // Remembered for later cases as well, unless even a few launches fill the queue, which is due to their kind
      // alone.
      if (launches > kLeastHeldLaunches) queue_takes() = std::max(kLeastHeldLaunches, most_held_);
      return -1;
    }
    return end_.since(begin_) / calls;
  }
  static int& queue_takes() {
    static int launches = kMostHeldLaunches;
    return launches;
  }

  DeviceTiming timing_;
  double full_clock_;
  int blocks_;
  int most_held_ = queue_takes();
  bool held_ = false;  // the last sample
  PinnedMemory flags_;
  ClockProbe probe_;
  DeviceArray<Vec16> flush_;
  DeviceArray<unsigned> never_;
  TimedEvent begin_, end_;
  std::vector<double> clocks_;
  Stream stream_;  // goes first
};

}  // namespace

void measure_device(State& state, const std::function<void(Queue)>& call, const DeviceTiming& timing) {
  if (!state.failures().empty()) return;  // a wrong result gives no number
  Limits limits = state.limits();
  if (state.mode() == Mode::kCold) limits.min_time = std::min(limits.min_time, 2e-3);
  Stopwatch watch(state.machine(), timing);
  // Runs once before anything is held: it loads its kernels, and loading may wait for the device.
  call(watch.queue());
  watch.wait();
  watch.warm_up();
  const double once = watch.cold(call);
  const int calls = state.mode() == Mode::kCold
                        ? 1
                        : static_cast<int>(std::clamp(kBatchSeconds / std::max(once, 1e-9), 3.0, 10000.0));
  Sampler sampler(limits);
  // The power limit keeps a large product below the highest clock for its whole duration, so that its samples are as
  // valid as others.
  std::int64_t slow = 0;
  const auto begin = Clock::now();
  do {
    sampler.add(calls == 1 ? watch.cold(call) : watch.batch(call, calls), calls);
    slow += watch.at_full_clock() ? 0 : 1;
  } while (!sampler.done(seconds_since(begin)));
  state.record(sampler);
  state.note("clock_hz", quantile(watch.clocks(), 0.5));
  if (slow > 0) state.note("slow_clock_samples", slow);
  if (calls > 1) state.note("calls_per_sample", calls);
  if (!timing.waits_for_host && !timing.issue_only) state.note("held", watch.held());
}

double reached_clock_hz() {
  static const double hertz = [] {
    const double promised = device_clock_hz();
    const Stream stream;
    const double reached = raise_clock(ClockProbe(), stream.queue(), 0.97 * promised, 64, promised > 0 ? 0.5 : 0.05);
    return promised > 0 ? std::min(promised, reached) : reached;
  }();
  return hertz;
}

void run_and_wait(const std::function<void(Queue)>& call) {
  Stream stream;  // not the default one, which batched copies do not take
  call(stream.queue());
  stream.synchronize();
}

void allow_shared(const void* kernel, std::size_t bytes) {
  static std::mutex mutex;  // pipelines launch from several threads
  static std::map<const void*, std::size_t> allowed;
  const std::lock_guard<std::mutex> lock(mutex);
  std::size_t& most = allowed[kernel];
  if (bytes <= most) return;
  KVCAST_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  // Allows as many blocks per multiprocessor as fit in its memory: none of these kernels depends on the L1.
  KVCAST_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   static_cast<int>(cudaSharedmemCarveoutMaxShared)));
  most = bytes;
}

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

void* device_allocate(std::size_t bytes) {
  void* p = nullptr;
  KVCAST_CUDA(cudaMalloc(&p, std::max<std::size_t>(bytes, 16)));
  KVCAST_CUDA(cudaMemset(p, 0xFF, std::max<std::size_t>(bytes, 16)));
  KVCAST_CUDA(cudaDeviceSynchronize());  // the streams of the harness do not wait for the default one
  return p;
}
void device_free(void* p) noexcept { cudaFree(p); }
// For pageable memory cudaMemcpy returns when the bytes are staged; other streams would not wait for the rest.
void device_copy(void* to, const void* from, std::size_t bytes) {
  KVCAST_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  KVCAST_CUDA(cudaStreamSynchronize(nullptr));
}

DeviceArray<Half> half_normals(std::uint64_t seed, std::size_t n) {
  DeviceArray<Half> out(n);
  launch({4096}, 256, 0, nullptr, fill_normals, out.data(), seed, n);
  KVCAST_CUDA(cudaDeviceSynchronize());
  return out;
}

}  // namespace kvcast::kernels
