#include "plan/setting_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <string_view>

#include "base/units.hpp"
#include "plan/replicas.hpp"
#include "result/metric.hpp"
#include "serving/summary.hpp"

namespace kvcast::plan {

using result::Result;

namespace {

constexpr const char* kDistinguishing[] = {"score.share_of_full", "request.ttft_s", "request.latency_s",
                                           "memory.hbm_peak_bytes"};

// Returns whether a comparison holds the key fixed or names it separately.
bool is_named_apart(const std::string& key) {
  static const std::set<std::string> named = {"hardware", "model", "workload.prompt_tokens", "workload.batch",
                                              "workload.decode_tokens"};
  if (key == "score" || key == "score.benchmark") return true;
  // A subject's machine states its changed numbers.
  return named.contains(key) || key.starts_with("hardware.") || key.starts_with("policy.") || key.starts_with("trace");
}

}  // namespace

std::string describe_setting(const Result& r) {
  constexpr std::string_view kPrefix = "policy.";
  std::string text = r.subject.policy;
  for (const result::Setting& setting : r.subject.settings) {
    if (!setting.key.starts_with(kPrefix) || setting.key == "policy.name") continue;
    text += fmt::format(", {} {}", setting.key.substr(kPrefix.size()), result::text_of(setting.value));
  }
  // `match:` leaves a policy without a budget, such as full KV, as it is.
  const bool matched = r.subject.find("policy.budget") != nullptr;
  for (const auto& [key, value] : r.subject.swept) {
    const bool without_effect = key.starts_with("match.") && !matched;
    if (!is_named_apart(key) && !is_seed(key) && !without_effect) text += fmt::format(", {} {}", key, value);
  }
  return text;
}

std::string rate_text(double tokens_per_s) {
  if (tokens_per_s < 100) return fmt::format("{:.3g}", tokens_per_s);
  const double unit = std::pow(10, std::floor(std::log10(tokens_per_s)) - 2);
  return fmt::format("{:.0f}", std::round(tokens_per_s / unit) * unit);
}

std::string request_text(const Result& r) {
  const auto text = [&r](const char* name) {
    const result::Metric& metric = *result::find_metric(name);
    return result::format_value(metric, result::value(r, metric).value_or(0));
  };
  if (r.service) {
    return fmt::format("{} served ({}), TTFT p99 {}, TPOT p99 {}", text("serving.requests_per_s"),
                       serving::state_name(r.service->summary.state), text("serving.ttft_s.p99"),
                       text("serving.tpot_s.p99"));
  }
  return fmt::format("{}, TTFT {}, latency {}", text("request.requests_per_s"), text("request.ttft_s"),
                     text("request.latency_s"));
}

std::string tokens_text(std::int64_t tokens) {
  const bool whole = tokens >= 10240 && tokens % 1024 == 0;  // "13K" would be read as 13312
  return whole ? fmt::format("{}K", tokens / 1024) : fmt::format("{}", tokens);
}

void TieRanges::add(const std::string& setting, const Result& result) {
  for (const char* const path : kDistinguishing) {
    const auto value = result::value(result, *result::find_metric(path));
    if (!value) continue;
    const std::pair here(*value, setting);
    auto& [low, high] = ranges_.try_emplace(path, Range{here, here}).first->second;
    if (*value < low.first) low = here;
    if (*value > high.first) high = here;
  }
}

std::vector<std::string> TieRanges::texts() const {
  std::vector<std::string> all;
  for (const char* const path : kDistinguishing) {
    const auto found = ranges_.find(path);
    if (found == ranges_.end()) continue;
    const auto& [low, high] = found->second;
    const result::Metric& metric = *result::find_metric(path);
    if (high.first <= 1.02 * low.first) continue;
    all.push_back(fmt::format("{} from {} ({}) to {} ({})", label_in_sentence(metric),
                              result::format_value(metric, low.first), low.second,
                              result::format_value(metric, high.first), high.second));
  }
  return all;
}

}  // namespace kvcast::plan
