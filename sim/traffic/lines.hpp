// Shared by all readers of traces: the lines of a file that may not fit into memory, and a map of recent sessions.
#pragma once

#include <cstdint>
#include <deque>
#include <fstream>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"

namespace kvcast::traffic {

// Throws UserError with the reason if the file cannot be read.
std::ifstream open_trace(const std::string& path);

// A map that forgets the keys inserted first: the sessions of a trace.
template <typename Value>
class FifoMap {
 public:
  static constexpr std::size_t kMost = 65536;

  Value* find(std::int64_t key) {
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : &at->second;
  }
  void put(std::int64_t key, Value value) {
    if (!values_.insert_or_assign(key, std::move(value)).second) return;
    order_.push_back(key);
    if (order_.size() <= kMost) return;
    values_.erase(order_.front());
    order_.pop_front();
  }

 private:
  std::unordered_map<std::int64_t, Value> values_;
  std::deque<std::int64_t> order_;
};

// Lines of a file that may be too large to hold.
class Lines {
 public:
  static constexpr std::size_t kLongest = 16u << 20;  // bytes

  // Throws UserError unless the file is a regular one that can be read: a device or pipe may never end.
  explicit Lines(const std::string& path);

  // Reads the next line that is not blank, without its end; returns whether there is one. Throws UserError for a longer
  // one than kLongest.
  bool next(std::string& line);
  SourceLocation where() const { return {path_, line_, 1}; }  // of the line read last
  std::ifstream& stream() { return in_; }

 private:
  std::string path_;
  std::ifstream in_;
  int line_ = 0;
};

}  // namespace kvcast::traffic
