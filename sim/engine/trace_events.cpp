// Trace Event Format (Google, "Trace Event Format", 2016): metadata events "M" name the rows, complete events "X" are
// the slices.
#include "engine/trace_events.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kvcast::engine {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string microseconds(Picoseconds t) { return fmt::format("{}.{:06}", t / 1'000'000, t % 1'000'000); }

Picoseconds readable(Picoseconds t) { return t - t % 1000; }

std::string from_to(Picoseconds from, Picoseconds to) {
  return fmt::format(R"("ts":{},"dur":{})", microseconds(readable(from)), microseconds(readable(to) - readable(from)));
}

TraceEvents::TraceEvents(std::ostream& out) : out_(out) { out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["; }

void TraceEvents::process(int process, const std::string& name) {
  event(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process, quoted(name)));
}

void TraceEvents::row(int process, int row, const std::string& name) {
  event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", process, row,
                    quoted(name)));
  event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", process,
                    row, row - 1));
}

void TraceEvents::slice(int process, int row, const std::string& name, const std::string& category, Picoseconds from,
                        Picoseconds to, const std::string& arguments) {
  event(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":{},{},"args":{{{}}}}})", process, row, quoted(name),
                    quoted(category), from_to(from, to), arguments));
}

void TraceEvents::event(const std::string& text) {
  out_ << (first_ ? "\n" : ",\n") << text;
  first_ = false;
}

void TraceEvents::close() {
  out_ << "\n]}\n";
  out_.flush();
}

}  // namespace kvcast::engine
