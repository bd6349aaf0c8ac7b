// Texts for the settings and numbers of a result in findings.
#pragma once

#include <cstdint>
#include <string>

#include "result/result.hpp"

namespace kvcast::plan {

// "quest, budget 1024": the name, every parameter that the configuration sets, and the other swept values.
std::string describe_setting(const result::Result& r);

// Tokens/s with three significant digits and without an exponent: 1050, 82.3.
std::string rate_text(double tokens_per_s);

// The numbers of a request, prompts included: "0.31 requests/s, TTFT 2.1 s, latency 9.4 s".
std::string request_text(const result::Result& r);

// "9000", "13000", and from 10240 tokens multiples of 1024 in that unit: "32K".
std::string tokens_text(std::int64_t tokens);

}  // namespace kvcast::plan
