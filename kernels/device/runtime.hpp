// Memory and launches, on the device or on the emulator: everything that benchmarks need besides the kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "harness/bench.hpp"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "device/lazy_queue.hpp"
#endif

namespace kvcast::kernels {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

#ifdef __CUDACC__
using Queue = cudaStream_t;

// Throws std::runtime_error with the name of the error and of the failed call.
void check_cuda(cudaError_t status, const char* what);
#define KVCAST_CUDA(call) ::kvcast::kernels::check_cuda((call), #call)

void* device_allocate(std::size_t bytes);  // filled with 0xFF: NaN as half and as float
void device_free(void* p) noexcept;
void device_copy(void* to, const void* from, std::size_t bytes);  // synchronous
// More than 48 KB of shared memory must be requested: once per kernel, and not while a stream is held.
void allow_shared(const void* kernel, std::size_t bytes);

// Kernel arguments are converted to the parameters' types first: cudaLaunchKernel takes their addresses.
template <typename... Parameters, typename... Arguments>
void launch(Grid grid, unsigned threads, std::size_t shared_bytes, Queue queue, void (*kernel)(Parameters...),
            Arguments... arguments) {
  if (shared_bytes > 48 << 10) allow_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<dim3(grid.x, grid.y, grid.z), threads, shared_bytes, queue>>>(static_cast<Parameters>(arguments)...);
  KVCAST_CUDA(cudaGetLastError());
}
#else
using Queue = emulator::LazyQueue*;  // none: runs at once

void* device_allocate(std::size_t bytes);  // filled with 0xFF; the following page is not mapped
void device_free(void* p) noexcept;
inline void device_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

template <typename... Parameters, typename... Arguments>
void launch(Grid grid, unsigned threads, std::size_t shared_bytes, Queue queue, void (*kernel)(Parameters...),
            Arguments... arguments) {
  const auto work = [=] {
    emulator::run({grid.x, grid.y, grid.z}, threads, shared_bytes,
                  [&] { kernel(static_cast<Parameters>(arguments)...); });
  };
  if (queue) {
    queue->push(work);
  } else {
    work();
  }
}
#endif

// Uninitialised elements read as NaN, so that elements which a kernel forgets to write are detected.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t n) : n_(n), data_(static_cast<T*>(device_allocate(n * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    if (n_ > 0) device_copy(data_, values.data(), n_ * sizeof(T));
  }
  ~DeviceArray() {
    if (data_) device_free(data_);
  }
  DeviceArray(DeviceArray&& other) noexcept : n_(other.n_), data_(other.data_) { other.data_ = nullptr; }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(n_, other.n_);
    std::swap(data_, other.data_);
    return *this;
  }
  T* data() const { return data_; }
  std::size_t size() const { return n_; }
  std::vector<T> host() const {
    std::vector<T> out(n_);
    if (n_ > 0) device_copy(out.data(), data_, n_ * sizeof(T));
    return out;
  }

 private:
  std::size_t n_ = 0;
  T* data_ = nullptr;
};

// n halves: random_normal(seed, 0 .. n−1), rounded.
DeviceArray<Half> half_normals(std::uint64_t seed, std::size_t n);
// The same numbers as floats for the reference, first .. first + n − 1.
std::vector<float> half_normals_host(std::uint64_t seed, std::size_t first, std::size_t n);
std::vector<float> floats_of(const DeviceArray<Half>& halves);

// Runs the call once and waits for it.
void run_and_wait(const std::function<void(Queue)>& call);

struct DeviceTiming {
  bool waits_for_host = false;  // the call synchronises: measured by the host's clock, without a held stream
  bool issue_only = false;      // time on the host until the call returns, rather than on the device until it is done
  bool flush = true;            // flush the L2 cache before cold samples
  int launches = 1;             // per call; more than fit into the launch queue are not held back
  double written = 0;           // share of the lines that the call writes, of all that it brings into the L2
};
// Samples the call according to state.mode() and records it in the state.
void measure_device(State& state, const std::function<void(Queue)>& call, const DeviceTiming& timing = {});

}  // namespace kvcast::kernels
