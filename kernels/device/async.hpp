// Streams, events, copies, graphs and pinned memory for programs that run several streams: CUDA's, or the emulator's.
#pragma once

#include <algorithm>

#include "device/runtime.hpp"

namespace kvcast::kernels {

#ifdef __CUDACC__
class Event {
 public:
  Event() { KVCAST_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() {
    if (event_) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

 private:
  friend class Stream;
  cudaEvent_t event_ = nullptr;
};

class Stream {
 public:
  Stream() { KVCAST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Queue queue() const { return stream_; }
  void record(Event& event) { KVCAST_CUDA(cudaEventRecord(event.event_, stream_)); }
  // Waits for the last recorded work at the time of the call; returns at once if there is none.
  void wait(const Event& event) { KVCAST_CUDA(cudaStreamWaitEvent(stream_, event.event_, 0)); }
  void synchronize() { KVCAST_CUDA(cudaStreamSynchronize(stream_)); }
  void copy(void* to, const void* from, std::size_t bytes) {
    KVCAST_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// Work of one stream, recorded once and launched as a whole.
class Graph {
 public:
  Graph() = default;
  ~Graph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  bool recorded() const { return exec_ != nullptr; }
  // Records what `work` queues on the stream. It must have run before: kernels are loaded outside of a recording.
  void record(Stream& stream, const std::function<void()>& work) {
    cudaGraph_t graph;
    KVCAST_CUDA(cudaStreamBeginCapture(stream.queue(), cudaStreamCaptureModeThreadLocal));
    work();
    KVCAST_CUDA(cudaStreamEndCapture(stream.queue(), &graph));
    KVCAST_CUDA(cudaGraphInstantiate(&exec_, graph, 0));
    KVCAST_CUDA(cudaGraphDestroy(graph));
  }
  void launch(Queue queue) const { KVCAST_CUDA(cudaGraphLaunch(exec_, queue)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// Page-locked host memory that the device can address.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    KVCAST_CUDA(cudaHostAlloc(&data_, std::max<std::size_t>(bytes, 16), cudaHostAllocMapped));
    KVCAST_CUDA(cudaHostGetDevicePointer(&device_, data_, 0));
  }
  ~PinnedMemory() {
    if (data_) cudaFreeHost(data_);
  }

#else
class Event {
 private:
  friend class Stream;
  std::shared_ptr<emulator::Mark> mark_;
};

class Stream {
 public:
  Queue queue() const { return &queue_; }
  void record(Event& event) { event.mark_ = queue_.mark(); }
  void wait(const Event& event) { queue_.wait(event.mark_); }
  void synchronize() { queue_.drain(nullptr); }
  void copy(void* to, const void* from, std::size_t bytes) {
    queue_.push([=] { std::memcpy(to, from, bytes); });
  }

 private:
  mutable emulator::LazyQueue queue_;
};

class Graph {
 public:
  bool recorded() const { return !works_.empty(); }
  void record(Stream& stream, const std::function<void()>& work) {
    stream.queue()->record(&works_);
    work();
    stream.queue()->record(nullptr);
  }
  void launch(Queue queue) const {
    for (const std::function<void()>& work : works_) queue->push(work);
  }

 private:
  std::vector<std::function<void()> > works_;
};

class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes), data_(device_allocate(bytes)), device_(data_) {}
  ~PinnedMemory() {
    if (data_) device_free(data_);
  }
#endif
  PinnedMemory(PinnedMemory&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)), device_(other.device_) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_), std::swap(data_, other.data_), std::swap(device_, other.device_);
    return *this;
  }
  std::size_t size() const { return bytes_; }
  template <typename T>
  T* host(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(data_) + offset);
  }
  // The same on the device.
  template <typename T>
  T* device(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(device_) + offset);
  }

 private:
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace kvcast::kernels
