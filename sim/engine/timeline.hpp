// The timeline of a run in Chrome's trace event format (JSON), which Perfetto and chrome://tracing open: one row a
// lane, one slice an op within the slices of its groups, an arrow for a wait, one counter a memory pool.
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

// Keeps a run's records and changes of memory.
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

// How an op is shown.
struct TimelineLabel {
  std::string name;
  std::string category;
  std::vector<std::pair<std::string, double>> numbers;  // beside the slice when it is clicked
  // The slices around it, outermost first: {"step 12", "layer 3"}. Ops that follow each other on a lane share slices
  // as long as their groups are alike.
  std::vector<std::string> groups;
  std::optional<OpId> waited_for;  // an op on another lane that is drawn, too
};

// Ops that take no time are left out. Starts and ends are whole nanoseconds, the resolution of readers. Slices of a row
// are written in order of time, outer ones first, as readers nest them.
void write_timeline(std::ostream& out, const System& system, const TimelineLog& log,
                    const std::function<TimelineLabel(const Record&)>& describe);

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
