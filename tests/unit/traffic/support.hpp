// Traffic from YAML, and all requests of a source whose requests take no time, or a given one.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "support/temporary_directory.hpp"
#include "traffic/source.hpp"

namespace kvcast::traffic {

inline config::Traffic traffic_of(const std::string& text) {
  return config::read_traffic({config::parse_yaml(text, "t.yaml"), "traffic"});
}

// Takes every request; each ends `service` after its arrival, in the order of the ends.
inline std::vector<Request> all_of(RequestSource& source, Picoseconds service = 0) {
  std::vector<Request> taken, running;
  for (;;) {
    auto first = running.begin();
    for (auto it = running.begin(); it != running.end(); ++it) {
      if (it->arrival < first->arrival) first = it;
    }
    const Picoseconds end = first == running.end() ? kNever : first->arrival + service;
    if (source.next() == kNever && end == kNever) return taken;
    if (source.next() <= end) {
      taken.push_back(source.take());
      running.push_back(taken.back());
    } else {
      const Request request = *first;
      running.erase(first);
      source.ended(request, end);
    }
  }
}

inline std::vector<Request> all_of(const std::string& text, Picoseconds service = 0) {
  return all_of(*make_source(traffic_of(text)), service);
}

// A file of a trace.
struct TraceFile {
  explicit TraceFile(const std::string& text) { write(text); }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
  std::string in(const std::string& keys = "") const {
    return "{file: " + path + (keys.empty() ? "" : ", ") + keys + "}";
  }

  TemporaryDirectory folder;
  std::string path = folder.path() + "/trace";
};

}  // namespace kvcast::traffic
