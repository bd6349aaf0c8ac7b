// Published load points of serving engines: files of configs/validation/serving, whose README describes them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::validate {

// A point of the same file that differs from another in one thing, and a number that was measured of both.
struct PointPair {
  std::string kind;    // "cache", "tier", "balancer", "apart" or "split"
  std::string number;  // requests_per_s
  std::string than;    // id of the point that this one is compared with
};

// A run under load and what was measured of it.
struct LoadPoint {
  std::string id, campaign, group;
  std::string source;                      // and the place in it
  config::Node config;                     // of a run with traffic: equal lengths are spread where the group says so
  std::map<std::string, double> measured;  // by name; without those that were not published
  std::vector<std::string> compared;  // names of those by which a prediction is judged; empty if only its pairs are
  std::vector<PointPair> pairs;
  bool paired = false;          // another point's pair names it
  bool chosen_knowing = false;  // a constant or rule was chosen with these numbers in view
  std::int64_t clients = 0;     // of a closed loop; 0: an open one
  std::int64_t skipped = 0;     // first requests that are not counted
  // Means over requests as the run writes them; unset if a trace or sessions decide.
  std::optional<double> prompt_tokens, output_tokens;
  std::optional<double> kv_capacity_tokens;  // stated by the source, of a replica
};

// Reads the points of a file that are compared or belong to a pair. Throws UserError, located, for an invalid one:
// unknown keys and names of numbers, points of another width than their group's columns, pairs of points that are not
// there, and counts that do not add up.
std::vector<LoadPoint> read_load_points(const std::string& path);
// Reads all files of a folder in alphabetical order; throws UserError if an id occurs twice.
std::vector<LoadPoint> read_all_load_points(const std::string& folder);

// The kind of a measured number: "TPOT", "throughput", "TTFT" or "E2E"; empty if it is none that the files may name.
std::string kind_of_number(const std::string& name);

}  // namespace kvcast::validate
