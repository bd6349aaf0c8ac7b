// The timeline of a run in Chrome's trace event format (JSON), which Perfetto and chrome://tracing open: one row per
// lane, one slice per op within the slices of its groups, an arrow per wait, one counter per memory pool.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace kvcast::engine {

// Records a run's ops and changes of memory.
class TimelineLog final : public Observer {
 public:
  struct MemoryChange {
    std::uint16_t pool = 0;
    Picoseconds at = 0;
    double in_use = 0;  // bytes from then on
  };

  void finished(const Record& record) override { records_.push_back(record); }
  void memory_changed(std::uint16_t pool, Picoseconds at, double in_use) override {
    memory_.push_back({pool, at, in_use});
  }

  const std::vector<Record>& records() const { return records_; }  // in order of finish
  const std::vector<MemoryChange>& memory() const { return memory_; }

 private:
  std::vector<Record> records_;
  std::vector<MemoryChange> memory_;
};

// The text and numbers of an op in a timeline.
struct TimelineLabel {
  std::string name;
  std::string category;
  std::vector<std::pair<std::string, double>> numbers;  // shown with the slice when it is clicked
  // The slices around it, outermost first: {"step 12", "layer 3"}. Consecutive ops on a lane share slices as long as
  // their groups are equal.
  std::vector<std::string> groups;
  std::optional<OpId> waited_for;  // an op on another lane that is drawn as well
};

// Omits ops that take no time. Starts and ends are whole nanoseconds, the resolution of viewers. Slices of a row are
// written in order of time, outer ones first, as viewers nest them.
void write_timeline(std::ostream& out, const System& system, const TimelineLog& log,
                    const std::function<TimelineLabel(const Record&)>& describe);

// Forwards a run's events to two observers.
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
