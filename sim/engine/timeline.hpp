// The timeline of a run in Chrome's trace event format (JSON), which Perfetto and chrome://tracing open: one row a
// lane, one bar an op, one counter a memory pool.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace kvcast::engine {

// What an op is called. `numbers` show beside the bar when it is clicked.
struct TimelineLabel {
  std::string name;
  std::string category;
  std::vector<std::pair<std::string, double>> numbers;
};

// Ops that lie in [from, to] at least in part are drawn, and changes of memory within.
struct TimelineRange {
  Picoseconds from = 0;
  Picoseconds to = std::numeric_limits<Picoseconds>::max();
};

// Writes while the run goes on and keeps nothing. Times are microseconds with six decimals: whole picoseconds.
class TimelineWriter final : public Observer {
 public:
  using Describe = std::function<TimelineLabel(std::uint64_t tag)>;

  // The stream and the system must outlive the writer.
  TimelineWriter(std::ostream& out, const System& system, Describe describe, TimelineRange range = {});
  // Closes.
  ~TimelineWriter() override;
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  void finished(const Record& record) override;
  void memory_changed(std::uint16_t pool, Picoseconds at, double in_use) override;
  // Ends the JSON; nothing may be written after that. Idempotent.
  void close();

 private:
  void begin_event();
  void name_lane(std::uint16_t lane);

  std::ostream& out_;
  const System& system_;
  Describe describe_;
  TimelineRange range_;
  std::vector<bool> lane_named_;
  std::string line_;  // scratch
  bool first_ = true, closed_ = false;
};

// Hands a run to two observers.
class BothObservers final : public Observer {
 public:
  BothObservers(Observer& first, Observer& second) : first_(first), second_(second) {}
  void finished(const Record& record) override {
    first_.finished(record);
    second_.finished(record);
  }
  void memory_changed(std::uint16_t pool, Picoseconds at, double in_use) override {
    first_.memory_changed(pool, at, in_use);
    second_.memory_changed(pool, at, in_use);
  }

 private:
  Observer& first_;
  Observer& second_;
};

}  // namespace kvcast::engine
