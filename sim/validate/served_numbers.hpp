// Numbers of a run under load, by the names of the files of load points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/interval.hpp"
#include "result/result.hpp"

namespace kvcast::validate {

// A request that was completed, in seconds from the start of the run.
struct ServedRequest {
  std::int64_t id = 0;  // in the order of arrival, from 0
  std::int64_t prompt_tokens = 1, output_tokens = 1;
  double arrival = 0, first_token = 0, last_token = 0;
};

// The number over all requests but the first `skipped` ones, in the unit of its name; rates are over the time from the
// first arrival that counts to the last token. Empty if no request has it, and for times between tokens but their mean.
std::optional<double> served_number(const std::string& name, const std::vector<ServedRequest>& requests,
                                    std::int64_t skipped);

// Ends of the 80 % interval of the number of a run, divided by the number; empty if the run has none.
std::optional<Interval> served_interval(const std::string& name, const result::Result& result);

// Mean requests of a batch, and how many of them a run has.
struct MeanRequest {
  double prompt_tokens = 1, output_tokens = 1, requests = 1;
};
// The same number of a batch of equal requests that is kept full, whose times have no spread.
std::optional<double> batch_number(const std::string& name, const result::Result& batch, const MeanRequest& mean);

// The path of the number in a result of a run with traffic: serving.ttft_s.mean.
std::string path_of_number(const std::string& name);

}  // namespace kvcast::validate
