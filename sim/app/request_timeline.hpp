// `run --timeline` of a run with traffic: its requests as a Chrome trace.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "serving/spans.hpp"

namespace kvcast::app {

inline constexpr std::size_t kMostSpans = 20'000;  // viewers become slow with many more

// A row a slot, with the passes of the requests that had it, and below them a row for each place in the queue.
void write_request_timeline(std::ostream& out, const std::vector<serving::Span>& spans);
// " (opens in Perfetto)", and if there are more spans than were written, how many.
std::string timeline_note(const serving::SpanRecorder& recorder);

}  // namespace kvcast::app
