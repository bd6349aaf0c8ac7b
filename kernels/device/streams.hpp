// Additional streams, events, graphs and pinned memory (CUDA only).
#pragma once

#include <vector>

#include "device/runtime.hpp"

namespace kvcast::kernels {

// Streams that begin when the measured stream gets there, and that it waits for. Work on them is held and timed with
// it.
class SideStreams {
 public:
  explicit SideStreams(int count) : streams_(static_cast<std::size_t>(count)), done_(static_cast<std::size_t>(count)) {
    KVCAST_CUDA(cudaEventCreateWithFlags(&start_, cudaEventDisableTiming));
    for (cudaStream_t& s : streams_) KVCAST_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (cudaEvent_t& e : done_) KVCAST_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  }
  ~SideStreams() {
    for (cudaStream_t s : streams_) cudaStreamDestroy(s);
    for (cudaEvent_t e : done_) cudaEventDestroy(e);
    cudaEventDestroy(start_);
  }
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  void fork(Queue from) {
    KVCAST_CUDA(cudaEventRecord(start_, from));
    for (cudaStream_t s : streams_) KVCAST_CUDA(cudaStreamWaitEvent(s, start_, 0));
  }
  void join(Queue into) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      KVCAST_CUDA(cudaEventRecord(done_[i], streams_[i]));
      KVCAST_CUDA(cudaStreamWaitEvent(into, done_[i], 0));
    }
  }
  Queue operator[](std::size_t i) const { return streams_[i]; }
  std::size_t size() const { return streams_.size(); }

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> done_;
  cudaEvent_t start_ = nullptr;
};

// Host memory, page-locked and mapped into the device's address space, or from malloc (touched, so that no page is
// missing when it is first read).
class HostBuffer {
 public:
  HostBuffer(std::size_t bytes, bool pinned) : bytes_(bytes), pinned_(pinned) {
    if (pinned) {
      KVCAST_CUDA(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped));
    } else {
      data_ = ::operator new(bytes, std::align_val_t(4096));
    }
    std::uint64_t* words = static_cast<std::uint64_t*>(data_);
    for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = random_bits(91, i);
  }
  ~HostBuffer() {
    if (pinned_) {
      cudaFreeHost(data_);
    } else {
      ::operator delete(data_, std::align_val_t(4096));
    }
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  std::size_t size() const { return bytes_; }
  // Its address on the device; pinned only.
  void* device() const {
    void* p = nullptr;
    KVCAST_CUDA(cudaHostGetDevicePointer(&p, data_, 0));
    return p;
  }

 private:
  std::size_t bytes_;
  bool pinned_;
  void* data_ = nullptr;
};

}  // namespace kvcast::kernels
