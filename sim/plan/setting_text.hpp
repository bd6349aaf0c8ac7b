// Texts for the settings and numbers of a result in findings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
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

// What tells settings apart that tie.
class Apart {
 public:
  void add(const std::string& setting, const result::Result& result);
  // "time to first token from 2 s (A) to 3 s (B)", for each number that differs by more than two per cent.
  std::vector<std::string> texts() const;

 private:
  using Ends = std::pair<std::pair<double, std::string>, std::pair<double, std::string>>;  // with their settings
  std::map<const char*, Ends> ends_;                                                       // by metric
};

}  // namespace kvcast::plan
