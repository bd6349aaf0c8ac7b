// Fork and join over a fixed set of pinned threads; the caller is thread 0. Workers poll between forks, which burns
// cores and takes microseconds.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace kvcast::kernels {

class Pool {
 public:
  explicit Pool(int threads);
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
  std::vector<std::thread> workers_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<unsigned> round_{0};
  std::atomic<int> left_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace kvcast::kernels
