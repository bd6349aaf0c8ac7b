// Fork and join over a fixed set of pinned threads; the caller is thread 0.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvcast::kernels {

class Pool {
 public:
  // spin: workers poll between forks (microseconds, burns cores); otherwise they sleep (a wake-up costs more).
  Pool(int threads, bool spin);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }
  // Calls task(i) once on each thread i; returns when all are done.
  void run(const std::function<void(int)>& task);
  // Calls task(first, last) over an even split of 0 .. items−1.
  void split(std::size_t items, const std::function<void(std::size_t, std::size_t)>& task);

 private:
  void work(int index);
  int threads_;
  bool spin_;
  std::vector<std::thread> workers_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<unsigned> round_{0};
  std::atomic<int> left_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_, done_;
};

}  // namespace kvcast::kernels
