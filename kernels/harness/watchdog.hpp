// Ends the process if a piece of work does not return: a kernel that hangs blocks its host thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace kvcast::kernels {

class Watchdog {
 public:
  // late(): called once, on a separate thread, when something has taken this many seconds; 0: never.
  Watchdog(double seconds, std::function<void()> late) : seconds_(seconds), late_(std::move(late)) {
    if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
  }
  ~Watchdog() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void begin() {
    set(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_)));
  }
  void end() { set(Clock::time_point::max()); }

 private:
  using Clock = std::chrono::steady_clock;
  void set(Clock::time_point due) {
    if (seconds_ <= 0) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      due_ = due;
    }
    changed_.notify_one();
  }
  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      if (due_ == Clock::time_point::max()) {
        changed_.wait(lock);
      } else if (Clock::now() < due_) {
        changed_.wait_until(lock, Clock::time_point(due_));
      } else {
        return late_();
      }
    }
  }

  double seconds_;
  std::function<void()> late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point due_ = Clock::time_point::max();
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace kvcast::kernels
