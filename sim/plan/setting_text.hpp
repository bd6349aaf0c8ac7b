// Texts for the settings and numbers of a result in findings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "result/metric.hpp"

namespace kvcast::plan {

// "quest, budget 1024": the name, every parameter that the configuration sets, and the other swept values.
std::string describe_setting(const result::Result& r);

// Tokens/s with three significant digits and without an exponent: 1050, 82.3.
std::string rate_text(double tokens_per_s);

// The numbers of a request, prompts included: "0.31 requests/s, TTFT 2.1 s, latency 9.4 s".
std::string request_text(const result::Result& r);

// "9000", "13000", and from 10240 tokens multiples of 1024 in that unit: "32K".
std::string tokens_text(std::int64_t tokens);

// Collects the ranges of the metrics by which a reader can choose between tied settings: score, latencies and memory.
class TieRanges {
 public:
  void add(const std::string& setting, const result::Result& result);
  // "time to first token from 2 s (A) to 3 s (B)", for each metric that differs by more than two per cent.
  std::vector<std::string> texts() const;

 private:
  struct Range {
    std::pair<double, std::string> low, high;  // a value, and the setting that has it
  };
  std::map<std::string_view, Range> ranges_;  // by the path of the metric
};

}  // namespace kvcast::plan
