// Reads a Chrome trace as Perfetto does: events sorted by time, those of equal times in the file's order; a slice is
// the child of the innermost one on its row that has not ended; an arrow's ends belong to the innermost slice at their
// times.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcast::tests {

struct PerfettoSlice {
  std::string row, name, category;
  std::int64_t begin = 0, end = 0;  // nanoseconds
  int parent = -1;                  // index of a slice
  nlohmann::json args;
};

struct PerfettoTrace {
  std::vector<PerfettoSlice> slices;
  std::vector<std::pair<int, int>> arrows;  // indices of slices
  std::size_t refused = 0;                  // slices that overlap their parents' ends, arrows without slices
  std::map<std::string, std::vector<std::pair<std::int64_t, double>>> counters;
};

inline PerfettoTrace read_as_perfetto(const nlohmann::json& file) {
  const auto ns = [](const nlohmann::json& us) { return std::llround(us.get<double>() * 1000); };
  std::vector<nlohmann::json> events;
  std::map<int, std::string> rows;
  for (const nlohmann::json& e : file.at("traceEvents")) {
    if (e.at("ph") != "M") {
      events.push_back(e);
    } else if (e.at("name") == "thread_name") {
      rows[e.at("tid").get<int>()] = e.at("args").at("name").get<std::string>();
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [&](const nlohmann::json& a, const nlohmann::json& b) { return ns(a.at("ts")) < ns(b.at("ts")); });
  PerfettoTrace trace;
  std::map<int, std::vector<int>> open;     // row → slices around now
  std::map<std::int64_t, int> arrow_begin;  // arrow → slice
  for (const nlohmann::json& e : events) {
    const std::int64_t at = ns(e.at("ts"));
    if (e.at("ph") == "C") {
      trace.counters[e.at("name").get<std::string>()].emplace_back(at, e.at("args").at("bytes").get<double>());
      continue;
    }
    std::vector<int>& around = open[e.at("tid").get<int>()];
    const auto slice = [&](int i) -> PerfettoSlice& { return trace.slices[static_cast<std::size_t>(i)]; };
    while (!around.empty() && slice(around.back()).end <= at) around.pop_back();
    if (e.at("ph") == "X") {
      PerfettoSlice next{rows.at(e.at("tid").get<int>()),
                         e.at("name").get<std::string>(),
                         e.at("cat").get<std::string>(),
                         at,
                         at + ns(e.at("dur")),
                         around.empty() ? -1 : around.back(),
                         e.value("args", nlohmann::json::object())};
      if (next.parent >= 0 && slice(next.parent).end < next.end) ++trace.refused;
      around.push_back(static_cast<int>(trace.slices.size()));
      trace.slices.push_back(std::move(next));
    } else if (around.empty()) {
      ++trace.refused;
    } else if (e.at("ph") == "s") {
      arrow_begin[e.at("id").get<std::int64_t>()] = around.back();
    } else if (e.at("ph") == "f" && e.at("bp") == "e" && arrow_begin.contains(e.at("id").get<std::int64_t>())) {
      trace.arrows.emplace_back(arrow_begin.at(e.at("id").get<std::int64_t>()), around.back());
    } else {
      ++trace.refused;
    }
  }
  return trace;
}

}  // namespace kvcast::tests
