// Progress on stderr: one line that is redrawn on a terminal, or a new line now and then in a pipe or a log.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace kvcast::app {

class Progress {
 public:
  // total: pieces of work, of which `done` were there before and say nothing about speed.
  Progress(std::string title, std::int64_t total, std::int64_t done);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // May be called from any thread.
  void advance(std::int64_t pieces, const std::string& now_at);

 private:
  void draw(const std::string& now_at);
  std::string left() const;
  std::string title_;
  std::int64_t total_, done_, at_start_;
  bool terminal_;
  bool started_ = false;  // whether a piece is done, from which on speed is measured
  std::chrono::steady_clock::time_point begin_, drawn_;
  std::mutex mutex_;
};

// Reports on stderr what a command is waiting for, when that takes longer than some seconds, and again now and then:
// "replaying quest: 30 s so far".
class LongWait {
 public:
  explicit LongWait(std::string what);
  ~LongWait();
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

 private:
  void speak();
  std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// Returns a callback for a call that counts `total` pieces, from any thread, and for further such calls after it: shows
// a Progress from the first piece of a call to its last.
std::function<void(std::int64_t done, std::int64_t total)> progress_of(std::string title);

// "42 s", "3 min 05 s", "2 h 10 min".
std::string format_duration(double seconds);

}  // namespace kvcast::app
