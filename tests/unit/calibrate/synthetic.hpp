// Measurements that a known machine would give, for fits that must find that machine again. Nothing here was measured.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/random.hpp"
#include "calibrate/machine.hpp"
#include "config/hardware.hpp"

namespace kvcast::test {

inline config::Hardware machine_of(const std::string& name) {
  return config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/" + name + ".yaml");
}

using Axes = std::map<std::string, std::vector<nlohmann::json>>;

// Rows for all combinations of the axes; work is worked out from the axes of a row.
inline void add_rows(nlohmann::json& document, const std::string& bench, const std::string& mode, const Axes& axes,
                     const std::function<nlohmann::json(const nlohmann::json&)>& work) {
  std::vector<nlohmann::json> points = {nlohmann::json::object()};
  for (const auto& [name, values] : axes) {
    std::vector<nlohmann::json> longer;
    for (const nlohmann::json& point : points) {
      for (const nlohmann::json& value : values) {
        longer.push_back(point);
        longer.back()[name] = value;
      }
    }
    points = std::move(longer);
  }
  for (const nlohmann::json& point : points) {
    document["rows"].push_back({{"bench", bench},
                                {"axes", point},
                                {"mode", mode},
                                {"work", work(point)},
                                {"time_s", {{"median", 1.0}}},
                                {"skip_reason", nullptr}});
  }
}

inline void write(const nlohmann::json& document, const std::string& path) { std::ofstream(path) << document.dump(); }

// Every row once more, as another pass that took so many times as long.
inline void add_pass(nlohmann::json& document, double times) {
  const nlohmann::json first = document["rows"];
  for (nlohmann::json row : first) {
    row["pass"] = 2;
    row["time_s"]["median"] = times * row["time_s"]["median"].get<double>();
    document["rows"].push_back(std::move(row));
  }
}

// Fills in the times: what `cases` says the machine takes, off by up to `noise` either way. Rows that stand for nothing
// keep one second.
inline void time_rows(nlohmann::json& document, const std::string& path, const config::Hardware& machine,
                      std::vector<calibrate::MeasuredOp> (*cases)(const calibrate::Results&), double noise) {
  write(document, path);
  const std::vector<calibrate::MeasuredOp> found = cases(calibrate::read_results(path));
  const std::vector<double> seconds = calibrate::predict(machine, found);
  std::map<std::string, double> by_id;
  for (std::size_t i = 0; i < found.size(); ++i) {
    by_id[found[i].id] = seconds[i] * (1 + noise * (2 * Stream(5).uniform(i) - 1));
  }
  const calibrate::Results results = calibrate::read_results(path);
  for (std::size_t i = 0; i < results.rows.size(); ++i) {
    const auto at = by_id.find(results.rows[i].id());
    if (at != by_id.end()) document["rows"][i]["time_s"]["median"] = at->second;
  }
  write(document, path);
}

}  // namespace kvcast::test
