// Trace Event Format (Google, "Trace Event Format", 2016): metadata events "M" name the rows, complete events "X" are
// the bars, "C" the counters. Decimal microseconds are written from integers, since a double would lose picoseconds
// after an hour.
#include "engine/timeline.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace kvcast::engine {

namespace {

constexpr int kProcess = 1;

// As a JSON string with its quotes. Bytes that are not UTF-8 are replaced: a label must not spoil the file.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string microseconds(Picoseconds t) { return fmt::format("{}.{:06}", t / 1'000'000, t % 1'000'000); }

std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

}  // namespace

TimelineWriter::TimelineWriter(std::ostream& out, const System& system, Describe describe, TimelineRange range)
    : out_(out),
      system_(system),
      describe_(std::move(describe)),
      range_(range),
      lane_named_(system.lanes.size(), false) {
  out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  begin_event();
  out_ << fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"kvcast"}}}})", kProcess);
}

TimelineWriter::~TimelineWriter() { close(); }

void TimelineWriter::begin_event() {
  out_ << (first_ ? "\n" : ",\n");
  first_ = false;
}

void TimelineWriter::name_lane(std::uint16_t lane) {
  if (lane_named_[lane]) return;
  lane_named_[lane] = true;
  begin_event();
  out_ << fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", kProcess, lane + 1,
                      quoted(system_.lanes[lane]));
  begin_event();
  out_ << fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
                      kProcess, lane + 1, lane);
}

void TimelineWriter::finished(const Record& record) {
  if (record.finish < range_.from || record.start > range_.to) return;
  name_lane(record.lane);
  const TimelineLabel label = describe_(record.tag);
  line_.clear();
  const auto to = std::back_inserter(line_);
  fmt::format_to(
      to, R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":{},"ts":{},"dur":{},"args":{{"op":{},"work_us":{})", kProcess,
      record.lane + 1, quoted(label.name), quoted(label.category), microseconds(record.start),
      microseconds(record.finish - record.start), record.id, microseconds(record.finish - record.work_start));
  for (const auto& [name, value] : label.numbers) fmt::format_to(to, ",{}:{}", quoted(name), number(value));
  line_ += "}}";
  begin_event();
  out_ << line_;
}

void TimelineWriter::memory_changed(std::uint16_t pool, Picoseconds at, double in_use) {
  if (at < range_.from || at > range_.to) return;
  begin_event();
  out_ << fmt::format(R"({{"ph":"C","pid":{},"name":{},"ts":{},"args":{{"bytes":{}}}}})", kProcess,
                      quoted(system_.pools[pool].name), microseconds(at), number(in_use));
}

void TimelineWriter::close() {
  if (closed_) return;
  closed_ = true;
  out_ << "\n]}\n";
  out_.flush();
}

}  // namespace kvcast::engine
