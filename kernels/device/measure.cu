// The device side of the harness, after nvbench (NVIDIA/nvbench: blocking_kernel.cu, measure_cold.cu, measure_hot.cu):
// a kernel that spins on a host flag holds the stream until all launches of a sample are queued, so that the time
// between the events holds no launch cost; a probe after each sample tells the clock that the sample ran at.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "device/fill.hpp"
#include "device/runtime.hpp"
#include "device/system.hpp"

namespace kvcast::kernels {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr unsigned long long kHoldNanoseconds = 10'000'000'000ull;
constexpr unsigned long long kProbeNanoseconds = 20'000;
constexpr double kThrottledShare = 0.75;
constexpr int kMostHeldLaunches = 512;  // the launch queue takes 1024; a full one would wait for a stream that waits
constexpr double kBatchSeconds = 5e-3;

__device__ unsigned long long global_nanoseconds() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// state[0]: set by the host to let go. state[1]: set here where the host did not do so in time.
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

class Event {
 public:
  Event() { KVCAST_CUDA(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(Queue queue) { KVCAST_CUDA(cudaEventRecord(event_, queue)); }
  double since(const Event& start) const {
    float milliseconds = 0;
    KVCAST_CUDA(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Stopwatch {
 public:
  Stopwatch(const Machine& machine, const DeviceTiming& timing)
      : timing_(timing),
        flush_bytes_(timing.flush ? static_cast<std::size_t>(2 * machine.l2_bytes) : 0),
        default_clock_(device_clock_hz()) {
    KVCAST_CUDA(cudaStreamCreateWithFlags(&queue_, cudaStreamNonBlocking));
    KVCAST_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&flags_), 2 * sizeof(int), cudaHostAllocMapped));
    KVCAST_CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_flags_), flags_, 0));
    KVCAST_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&probe_), 2 * sizeof(unsigned long long), cudaHostAllocMapped));
    KVCAST_CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_probe_), probe_, 0));
    if (flush_bytes_ > 0) flush_ = DeviceArray<unsigned char>(flush_bytes_);
  }
  ~Stopwatch() {
    flags_[0] = 1;  // whatever was thrown, nothing stays held
    cudaStreamSynchronize(queue_);
    cudaFreeHost(flags_);
    cudaFreeHost(probe_);
    cudaStreamDestroy(queue_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  Queue queue() const { return queue_; }
  void wait() { KVCAST_CUDA(cudaStreamSynchronize(queue_)); }

  // Seconds of one call, with the cache flushed before it.
  double cold(const std::function<void(Queue)>& call) {
    if (flush_bytes_ > 0) KVCAST_CUDA(cudaMemsetAsync(flush_.data(), 0x5A, flush_bytes_, queue_));
    if (timing_.waits_for_host || timing_.issue_only) return by_host(call, 1);
    return between_events([&] { call(queue_); }, timing_.launches, 1);
  }

  // Seconds of each of many calls, one after another. The stream is held while the first few are queued.
  double batch(const std::function<void(Queue)>& call, int calls) {
    if (timing_.issue_only) return by_host(call, 1);  // more would fill the launch queue
    if (timing_.waits_for_host) return by_host(call, calls);
    const int first = std::min(2, calls);
    return between_events([&] { repeat(call, first); }, timing_.launches * first, calls,
                          [&] { repeat(call, calls - first); });
  }

  // Did the device run at three quarters of its clock or more just now? Unknown clocks count as full.
  bool at_full_clock() {
    probe_clock<<<1, 1, 0, queue_>>>(device_probe_);
    KVCAST_CUDA(cudaGetLastError());
    wait();
    const double hertz = static_cast<double>(probe_[0]) / (static_cast<double>(probe_[1]) * 1e-9);
    clocks_.push_back(hertz);
    return default_clock_ <= 0 || hertz >= kThrottledShare * default_clock_;
  }
  const std::vector<double>& clocks() const { return clocks_; }

 private:
  void repeat(const std::function<void(Queue)>& call, int times) {
    for (int i = 0; i < times; ++i) call(queue_);
  }
  double by_host(const std::function<void(Queue)>& call, int calls) {
    wait();
    const auto begin = Clock::now();
    repeat(call, calls);
    const double issued = seconds_since(begin);
    wait();
    return (timing_.issue_only ? issued : seconds_since(begin)) / calls;
  }
  void release() { reinterpret_cast<volatile int*>(flags_)[0] = 1; }

  double between_events(
      const std::function<void()>& held, int held_launches, int calls, const std::function<void()>& then = [] {}) {
    const bool hold = held_launches <= kMostHeldLaunches;
    if (hold) {
      flags_[0] = flags_[1] = 0;
      hold_stream<<<1, 1, 0, queue_>>>(device_flags_);
      KVCAST_CUDA(cudaGetLastError());
    }
    begin_.record(queue_);
    held();
    if (calls == 1) end_.record(queue_);
    release();
    then();
    if (calls != 1) end_.record(queue_);
    wait();
    if (hold && flags_[1] != 0)
      throw std::runtime_error("the stream was held for 10 s: the call waits for the device while it queues");
    return end_.since(begin_) / calls;
  }

  DeviceTiming timing_;
  std::size_t flush_bytes_;
  double default_clock_;
  Queue queue_ = nullptr;
  int* flags_ = nullptr;
  int* device_flags_ = nullptr;
  unsigned long long* probe_ = nullptr;
  unsigned long long* device_probe_ = nullptr;
  DeviceArray<unsigned char> flush_;
  Event begin_, end_;
  std::vector<double> clocks_;
};

// Adds or drops; a pause that grows lets a hot device recover.
void take(Sampler& sampler, Stopwatch& watch, double seconds, double& pause) {
  if (watch.at_full_clock()) {
    sampler.add(seconds);
    pause = 0;
    return;
  }
  sampler.drop();
  pause = std::min(0.2, pause * 1.5 + 0.01);
  const auto begin = Clock::now();
  while (seconds_since(begin) < pause) continue;
}

}  // namespace

void measure_device(State& state, const std::function<void(Queue)>& call, const DeviceTiming& timing) {
  Limits limits = state.limits();
  if (state.mode() == Mode::kCold) limits.min_time = std::min(limits.min_time, 2e-3);
  Stopwatch watch(state.machine(), timing);
  call(watch.queue());
  watch.wait();
  const double once = watch.cold(call);
  const int calls = state.mode() == Mode::kCold
                        ? 1
                        : static_cast<int>(std::clamp(kBatchSeconds / std::max(once, 1e-9), 3.0, 10000.0));
  Sampler sampler(limits);
  double pause = 0;
  const auto begin = Clock::now();
  do {
    take(sampler, watch, state.mode() == Mode::kCold ? watch.cold(call) : watch.batch(call, calls), pause);
  } while (!sampler.done(seconds_since(begin)));
  state.record(sampler);
  state.note("clock_hz", quantile(watch.clocks(), 0.5));
  if (calls > 1) state.note("calls_per_sample", calls);
}

void run_and_wait(const std::function<void(Queue)>& call) {
  cudaStream_t stream;  // not the default one, which batched copies do not take
  KVCAST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  call(stream);
  KVCAST_CUDA(cudaStreamSynchronize(stream));
  KVCAST_CUDA(cudaStreamDestroy(stream));
}

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

void* device_allocate(std::size_t bytes) {
  void* p = nullptr;
  KVCAST_CUDA(cudaMalloc(&p, bytes));
  KVCAST_CUDA(cudaMemset(p, 0xFF, bytes));
  KVCAST_CUDA(cudaDeviceSynchronize());  // the streams of the harness do not wait for the default one
  return p;
}
void device_free(void* p) noexcept { cudaFree(p); }
void device_copy(void* to, const void* from, std::size_t bytes) {
  KVCAST_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

DeviceArray<Half> half_normals(std::uint64_t seed, std::size_t n) {
  DeviceArray<Half> out(n);
  launch({4096}, 256, 0, nullptr, fill_normals, out.data(), seed, n);
  KVCAST_CUDA(cudaDeviceSynchronize());
  return out;
}

}  // namespace kvcast::kernels
