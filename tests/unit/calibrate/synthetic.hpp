// Results that a known machine would give, for fits that must recover that machine. Nothing here was measured.
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

namespace kvcast::tests {

inline config::Hardware machine_of(const std::string& name) {
  return config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/" + name + ".yaml");
}

using Axes = std::map<std::string, std::vector<nlohmann::json>>;

// Rows for all combinations of the axes; work is derived from the axes of a row.
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

inline nlohmann::json work(double bytes, double flops = 0, double rows = 0) {
  return {{"bytes", bytes}, {"flops", flops}, {"rows", rows}};
}
inline nlohmann::json empty_document(nlohmann::json environment) {
  return {{"schema", "kvcast-kernels/1"}, {"environment", std::move(environment)}, {"rows", nlohmann::json::array()}};
}
inline calibrate::MachineRequest made_up_request(const config::Hardware& base) {
  return {.base = base, .name = "made-up.json", .budget_median = 0.05, .budget_p90 = 0.15};
}

// The benchmarks of kvcast-kernels, with fewer values on each axis.
inline nlohmann::json gpu_document() {
  using nlohmann::json;
  json doc = empty_document({{"host_cpu", "made up"},
                             {"date", "2026-01-01"},
                             {"device", "Made-up GPU"},
                             {"sm_count", 132},
                             {"tensor_peak", 989e12},
                             {"clock_hz", 1755e6},
                             {"hbm_peak", 3.35e12},
                             {"l2_bytes", 50e6},
                             {"pcie_lanes", 16},
                             {"pcie_generation_under_load", 5}});
  add_rows(doc, "launch_chain", "cold",
           {{"how", {"stream", "graph"}}, {"clock", {"device", "issue"}}, {"kernels", {16, 32, 64, 128, 256}}},
           [](const json&) { return json::object(); });
  add_rows(doc, "host_sync", "batch", {{"what", {"stream_sync_idle", "value_round_trip"}}},
           [](const json&) { return json::object(); });
  add_rows(doc, "hbm_stream", "cold", {{"op", {"read", "copy"}}, {"bytes", {1 << 16, 1 << 20, 1 << 24, 1 << 28}}},
           [](const json& a) { return work(a["bytes"].get<double>() * (a["op"] == "copy" ? 2 : 1)); });
  add_rows(doc, "hbm_gather", "cold", {{"row_bytes", {64, 256, 1024}}, {"run", {1, 4}}, {"gathered", {32768, 262144}}},
           [](const json& a) { return work(2 * a["row_bytes"].get<double>() * a["gathered"].get<double>()); });
  add_rows(doc, "convert", "cold", {{"pages", {64, 512, 4096}}},
           [](const json& a) { return work(a["pages"].get<double>() * 32 * 8 * 128 * 8); });
  add_rows(doc, "topk", "cold", {{"rows", {1, 8, 200}}, {"n", {1000, 4096, 65536}}, {"k", {64, 2048}}},
           [](const json&) { return json::object(); });
  add_rows(doc, "gemm", "cold",
           {{"m", {1, 16, 64, 256, 1024, 8192}}, {"n", {4096, 14336, 28672}}, {"k", {4096, 14336}}},
           [](const json&) { return json::object(); });
  add_rows(doc, "decode_attention", "cold",
           {{"batch", {1, 4, 16, 64}},
            {"context", {128, 512, 2048, 8192, 32768}},
            {"kv_heads", {8}},
            {"group", {4, 8}},
            {"page", {32}},
            {"dim", {128}}},
           [](const json&) { return json::object(); });
  add_rows(doc, "prefill_attention", "cold", {{"tokens", {1024, 4096, 16384}}}, [](const json& a) {
    const double tokens = a["tokens"].get<double>();
    return work(2 * tokens * 80 * 128 * 2, 2.0 * 32 * tokens * tokens * 128);
  });
  add_rows(doc, "host_copy", "cold",
           {{"direction", {"h2d", "d2h"}},
            {"memory", {"pinned"}},
            {"how", {"calls", "batched"}},
            {"clock", {"device", "issue"}},
            {"bytes", {4096, 16384, 1 << 20, 1 << 26}},
            {"pieces", {8, 64}}},
           [](const json&) { return json::object(); });
  add_rows(doc, "zero_copy_gather", "cold",
           {{"piece", {256, 4096}}, {"bytes", {1 << 24, 1 << 27}}, {"blocks", {8, 128}}},
           [](const json&) { return json::object(); });
  return doc;
}

inline void write(const nlohmann::json& document, const std::string& path) { std::ofstream(path) << document.dump(); }

// Every row again, as another pass that took this many times as long.
inline void add_pass(nlohmann::json& document, double times) {
  const nlohmann::json first = document["rows"];
  for (nlohmann::json row : first) {
    row["pass"] = 2;
    row["time_s"]["median"] = times * row["time_s"]["median"].get<double>();
    document["rows"].push_back(std::move(row));
  }
}

// Fills in the times: the machine's times of `cases`, with an error of up to ±`noise`. Rows that represent nothing keep
// one second.
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

}  // namespace kvcast::tests
