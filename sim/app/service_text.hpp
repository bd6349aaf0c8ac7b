// The text that `run` prints of a run with traffic, and the file of its requests.
#pragma once

#include <ostream>
#include <string>

#include "result/result.hpp"
#include "serving/queue.hpp"
#include "study/study.hpp"

namespace kvcast::app {

// "2.5 requests/s, 8192 prompt tokens, 256 generated": the traffic in a line.
std::string traffic_text(const config::Traffic& traffic, const study::RequestLengths& lengths);
// The three lines that answer most questions.
void print_service_verdict(const result::Result& r);

// Rows of `run --requests`.
void write_requests_head(std::ostream& out);
void write_request(std::ostream& out, const serving::Departure& outcome);

}  // namespace kvcast::app
