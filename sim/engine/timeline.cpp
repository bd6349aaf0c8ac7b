// Slices are written as in engine/trace_events.cpp; events "s" and "f" begin and end the arrows, "C" are the counters.
#include "engine/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "engine/trace_events.hpp"

namespace kvcast::engine {
namespace {

constexpr int kProcess = 1;

std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

struct Slice {
  const Record* record;
  TimelineLabel label;
};

class Writer {
 public:
  Writer(std::ostream& out, const System& system) : events_(out), system_(system) {
    events_.process(kProcess, "kvcast");
  }

  void lane(std::uint16_t lane, const std::vector<Slice>& slices) {
    events_.row(kProcess, lane + 1, system_.lanes[lane]);
    std::vector<std::string> open;  // groups of the previous slice
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const std::vector<std::string>& groups = slices[i].label.groups;
      const auto [differs, ignored] = std::mismatch(open.begin(), open.end(), groups.begin(), groups.end());
      for (auto depth = static_cast<std::size_t>(differs - open.begin()); depth < groups.size(); ++depth) {
        group(lane, groups[depth], slices[i].record->start, end_of_group(slices, i, depth));
      }
      open = groups;
      slice(slices[i]);
    }
  }

  void arrow(const Record& from, const Record& to) {
    for (const auto& [phase, at] : {std::pair(R"("s")", &from), std::pair(R"("f","bp":"e")", &to)}) {
      events_.event(fmt::format(R"({{"ph":{},"pid":{},"tid":{},"name":"wait","cat":"wait","id":{},"ts":{}}})", phase,
                                kProcess, at->lane + 1, to.id, microseconds(readable(at->start))));
    }
  }

  void memory(const TimelineLog::MemoryChange& change) {
    events_.event(fmt::format(R"({{"ph":"C","pid":{},"name":{},"ts":{},"args":{{"bytes":{}}}}})", kProcess,
                              quoted(system_.pools[change.pool].name), microseconds(readable(change.at)),
                              number(change.in_use)));
  }

  void close() { events_.close(); }

 private:
  static Picoseconds end_of_group(const std::vector<Slice>& slices, std::size_t from, std::size_t depth) {
    const std::vector<std::string>& groups = slices[from].label.groups;
    const auto same = [&](const Slice& s) {
      return s.label.groups.size() > depth &&
             std::equal(groups.begin(), groups.begin() + static_cast<long>(depth) + 1, s.label.groups.begin());
    };
    std::size_t last = from;
    while (last + 1 < slices.size() && same(slices[last + 1])) ++last;
    return slices[last].record->finish;
  }

  void group(std::uint16_t lane, const std::string& name, Picoseconds from, Picoseconds to) {
    events_.event(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"group",{}}})", kProcess, lane + 1,
                              quoted(name), from_to(from, to)));
  }

  void slice(const Slice& slice) {
    const Record& record = *slice.record;
    std::string numbers =
        fmt::format(R"("op":{},"work_us":{})", record.id, microseconds(record.finish - record.work_start));
    for (const auto& [name, value] : slice.label.numbers)
      fmt::format_to(std::back_inserter(numbers), ",{}:{}", quoted(name), number(value));
    events_.slice(kProcess, record.lane + 1, slice.label.name, slice.label.category, record.start, record.finish,
                  numbers);
  }

  TraceEvents events_;
  const System& system_;
};

}  // namespace

void write_timeline(std::ostream& out, const System& system, const TimelineLog& log,
                    const std::function<TimelineLabel(const Record&)>& describe) {
  std::map<std::uint16_t, std::vector<Slice>> lanes;  // a lane's ops finish in the order in which they run
  std::map<OpId, const Record*> drawn;
  for (const Record& record : log.records()) {
    if (record.start == record.finish) continue;
    lanes[record.lane].push_back({&record, describe(record)});
    drawn[record.id] = &record;
  }
  Writer writer(out, system);
  for (const auto& [lane, slices] : lanes) writer.lane(lane, slices);
  // Arrows follow all slices: an arrow belongs to the innermost slice that is known at its time.
  for (const auto& [lane, slices] : lanes) {
    for (const Slice& s : slices) {
      const auto from = s.label.waited_for ? drawn.find(*s.label.waited_for) : drawn.end();
      if (from != drawn.end()) writer.arrow(*from->second, *s.record);
    }
  }
  for (const TimelineLog::MemoryChange& change : log.memory()) writer.memory(change);
  writer.close();
}

}  // namespace kvcast::engine
