// A host thread that serves one system's recalls or backups: it runs tasks one after another and polls for the next.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace kvcast::kernels {

class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    stop_ = true;
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The task's number, from 1.
  long post(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    return ++posted_;
  }
  // Waits until that task, and all before it, have returned. Rethrows exceptions of tasks.
  void wait(long task) {
    while (done_.load(std::memory_order_acquire) < task) pause();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  void wait_all() { wait(posted()); }
  // The same for callers that must not throw.
  void settle() noexcept {
    const long last = posted();
    while (done_.load(std::memory_order_acquire) < last) pause();
  }

 private:
  // On the device's host the latency of a hand-over matters; the emulator shares its cores with others.
  static void pause() {
#ifdef __CUDACC__
    std::this_thread::yield();
#else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
#endif
  }
  long posted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return posted_;
  }
  bool take(std::function<void()>& task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tasks_.empty()) return false;
    task = std::move(tasks_.front());
    tasks_.pop_front();
    return true;
  }
  void work() {
    std::function<void()> task;
    while (!stop_) {
      if (!take(task)) {
        pause();
        continue;
      }
      try {
        task();
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex_);
        error_ = std::current_exception();
      }
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  long posted_ = 0;
  std::exception_ptr error_;
  std::atomic<long> done_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses all the others
};

}  // namespace kvcast::kernels
