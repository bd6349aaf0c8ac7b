// Events of Chrome's trace format (JSON): rows with slices, as Perfetto and chrome://tracing show them.
#pragma once

#include <ostream>
#include <string>

#include "base/units.hpp"

namespace kvcast::engine {

// Returns the text as a JSON string with its quotes. Bytes that are not UTF-8 are replaced, so that a label cannot make
// the file invalid.
std::string quoted(const std::string& text);
std::string microseconds(Picoseconds t);
// Viewers keep whole nanoseconds. Both ends are rounded down, never a duration: otherwise a slice could reach into the
// next one and be taken for its parent.
Picoseconds readable(Picoseconds t);
// "ts" and "dur" of a slice.
std::string from_to(Picoseconds from, Picoseconds to);

class TraceEvents {
 public:
  explicit TraceEvents(std::ostream& out);

  // Processes are groups of rows; rows of a process are in the order of their numbers, which start at 1.
  void process(int process, const std::string& name);
  void row(int process, int row, const std::string& name);
  // `arguments`: members of a JSON object, shown with the slice when it is clicked.
  void slice(int process, int row, const std::string& name, const std::string& category, Picoseconds from,
             Picoseconds to, const std::string& arguments);
  void event(const std::string& text);  // any other one, as JSON
  void close();

 private:
  std::ostream& out_;
  bool first_ = true;
};

}  // namespace kvcast::engine
