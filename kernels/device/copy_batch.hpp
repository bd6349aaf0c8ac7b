// Copies that one call issues together (cudaMemcpyBatchAsync, from CUDA 12.8 on), on the device or on the emulator.
#pragma once

#include <string>
#include <vector>

#include "device/async.hpp"

namespace kvcast::kernels {

#ifdef __CUDACC__
inline constexpr bool kHasCopyBatch = CUDART_VERSION >= 12080;
#else
inline constexpr bool kHasCopyBatch = true;
#endif

// The pieces have no order among each other; as a whole they keep the stream's. The default stream takes no batch.
class CopyBatch {
 public:
  void add(void* to, const void* from, std::size_t bytes) {
    to_.push_back(to), from_.push_back(const_cast<void*>(from)), sizes_.push_back(bytes);
  }
  void clear() { to_.clear(), from_.clear(), sizes_.clear(); }
  // Queues the copies; the lists may change when it returns. Throws std::runtime_error if the driver refuses.
  void issue([[maybe_unused]] Queue queue) {
#ifndef __CUDACC__
    queue->push([to = to_, from = from_, sizes = sizes_] {
      for (std::size_t i = sizes.size(); i-- > 0;) std::memcpy(to[i], from[i], sizes[i]);
    });
#elif CUDART_VERSION >= 12080
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000
    KVCAST_CUDA(
        cudaMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), sizes_.size(), &attributes, &first, 1, queue));
#else
    std::size_t failed = 0;
    KVCAST_CUDA(cudaMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), sizes_.size(), &attributes, &first, 1,
                                     &failed, queue));
#endif
#endif
  }

 private:
  std::vector<void*> to_, from_;
  std::vector<std::size_t> sizes_;
};

// The reason why batches of copies from page-locked memory cannot be measured here; empty if they can. Drivers older
// than the runtime do not have them.
inline std::string no_copy_batch() {
  if (!kHasCopyBatch) return "batched copies need CUDA 12.8";
  const PinnedMemory host(64);
  const DeviceArray<unsigned char> device(64);
  CopyBatch two;
  for (std::size_t at : {0, 32}) two.add(device.data() + at, host.host<void>(at), 32);
  try {
    Stream stream;
    two.issue(stream.queue());
    stream.synchronize();
  } catch (const std::runtime_error& error) {
    return std::string("no batched copies here: ") + error.what();
  }
  return "";
}

}  // namespace kvcast::kernels
