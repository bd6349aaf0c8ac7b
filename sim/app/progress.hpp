// A line on stderr that says how far a long piece of work is: only on a terminal, never in a pipe or a log.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace kvcast::app {

class Progress {
 public:
  // total: pieces of work, of which `done` are there already and say nothing about speed.
  Progress(std::string title, std::int64_t total, std::int64_t done);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // From any thread.
  void advance(std::int64_t pieces, const std::string& now_at);

 private:
  void draw(const std::string& now_at);
  std::string title_;
  std::int64_t total_, done_, at_start_;
  bool terminal_;
  std::chrono::steady_clock::time_point begin_, drawn_;
  std::mutex mutex_;
};

// "42 s", "3 min 05 s", "2 h 10 min".
std::string format_duration(double seconds);

}  // namespace kvcast::app
