#include "validate/served_numbers.hpp"

#include <algorithm>

#include "base/quantile.hpp"
#include "result/metric.hpp"

namespace kvcast::validate {
namespace {

constexpr double kMilli = 1e3;

bool starts_with(const std::string& name, const char* start) { return name.rfind(start, 0) == 0; }

std::string statistic_of(const std::string& name) {
  const std::size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(dot + 1);
}

std::optional<double> statistic(const std::vector<double>& values, const std::string& which) {
  if (values.empty()) return {};
  if (which == "mean") return mean(values);
  return quantile(values, which == "p50" ? 0.5 : which == "p90" ? 0.9 : 0.99);
}

std::optional<double> rate(const std::string& name, const std::vector<ServedRequest>& requests) {
  double first = requests.front().arrival, last = 0, prompts = 0, outputs = 0;
  for (const ServedRequest& r : requests) {
    first = std::min(first, r.arrival), last = std::max(last, r.last_token);
    prompts += static_cast<double>(r.prompt_tokens), outputs += static_cast<double>(r.output_tokens);
  }
  const double duration = last - first;
  if (name == "duration_s") return duration;
  if (duration <= 0) return {};
  if (name == "requests_per_s") return static_cast<double>(requests.size()) / duration;
  if (name == "input_tokens_per_s") return prompts / duration;
  return (name == "output_tokens_per_s" ? outputs : prompts + outputs) / duration;
}

// Milliseconds of each request that has them.
std::vector<double> times(const std::string& name, const std::vector<ServedRequest>& requests) {
  std::vector<double> all;
  for (const ServedRequest& r : requests) {
    const auto outputs = static_cast<double>(r.output_tokens);
    const double e2e = kMilli * (r.last_token - r.arrival), decoding = kMilli * (r.last_token - r.first_token);
    if (starts_with(name, "ttft")) {
      all.push_back(kMilli * (r.first_token - r.arrival));
    } else if (starts_with(name, "e2e_per_token")) {
      all.push_back(e2e / outputs);
    } else if (starts_with(name, "e2e")) {
      all.push_back(e2e);
    } else if (r.output_tokens > 1) {
      all.push_back(decoding / (outputs - 1));
    }
  }
  return all;
}

// Every time between tokens counts once.
std::optional<double> mean_between_tokens(const std::vector<ServedRequest>& requests) {
  double sum = 0, count = 0;
  for (const ServedRequest& r : requests) {
    sum += kMilli * (r.last_token - r.first_token), count += static_cast<double>(r.output_tokens - 1);
  }
  if (count <= 0) return {};
  return sum / count;
}

}  // namespace

std::optional<double> served_number(const std::string& name, const std::vector<ServedRequest>& requests,
                                    std::int64_t skipped) {
  std::vector<ServedRequest> counted;
  std::ranges::copy_if(requests, std::back_inserter(counted), [&](const ServedRequest& r) { return r.id >= skipped; });
  if (counted.empty()) return {};
  const std::string which = statistic_of(name);
  if (which.empty()) return rate(name, counted);
  if (!starts_with(name, "itl")) return statistic(times(name, counted), which);
  if (which != "mean") return {};
  return mean_between_tokens(counted);
}

std::string path_of_number(const std::string& name) {
  const std::string which = statistic_of(name);
  if (which.empty()) return "serving." + (name == "input_tokens_per_s" ? std::string("total_tokens_per_s") : name);
  const std::string time = starts_with(name, "e2e") ? "e2e" : name.substr(0, name.find('_'));
  return "serving." + time + "_s." + which;
}

std::optional<Interval> served_interval(const std::string& name, const result::Result& result) {
  const result::Metric* const metric = result::find_metric(path_of_number(name));
  if (metric == nullptr) return {};
  const auto value = result::value(result, *metric);
  const auto range = result::interval(result, *metric);
  if (!value || !range || *value <= 0) return {};
  return Interval{range->low / *value, range->high / *value};
}

std::optional<double> batch_number(const std::string& name, const result::Result& batch, const MeanRequest& of) {
  const auto get = [&](const char* path) { return result::value(batch, *result::find_metric(path)); };
  const auto scaled = [](std::optional<double> value, double factor) -> std::optional<double> {
    if (!value) return {};
    return *value * factor;
  };
  const double tokens = of.prompt_tokens + of.output_tokens;
  if (starts_with(name, "ttft")) return scaled(get("request.ttft_s"), kMilli);
  if (starts_with(name, "tpot") || starts_with(name, "itl")) return scaled(get("request.tpot_s"), kMilli);
  if (starts_with(name, "e2e_per_token")) return scaled(get("request.latency_s"), kMilli / of.output_tokens);
  if (starts_with(name, "e2e")) return scaled(get("request.latency_s"), kMilli);
  const std::optional<double> requests = get("request.requests_per_s");
  if (name == "requests_per_s") return requests;
  if (name == "output_tokens_per_s") return scaled(requests, of.output_tokens);
  if (name == "input_tokens_per_s") return scaled(requests, of.prompt_tokens);
  if (name == "total_tokens_per_s") return scaled(requests, tokens);
  if (!requests || *requests <= 0) return {};
  return of.requests / *requests;
}

}  // namespace kvcast::validate
