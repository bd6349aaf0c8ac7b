// The parts of a time to first token, which add up to it.
#pragma once

#include "serving/queue.hpp"

namespace kvcast::serving {

// Picoseconds of a request, or seconds of several.
template <class Number>
struct TtftParts {
  Number front_end = 0;  // HTTP and tokenising
  Number queue = 0;      // until the first pass that reads the request
  Number prefill = 0;    // in passes that read it, were it alone in them
  Number beside = 0;     // what decodes and chunks of others add to these passes
  Number between = 0;    // passes of others between its own, and the wait after a preemption
  Number sum() const { return front_end + queue + prefill + beside + between; }
};

// A part as both have it, what it is called, and what it is due to.
struct TtftPart {
  const char *name, *label, *cause;
  double TtftParts<double>::*seconds;
  Picoseconds TtftParts<Picoseconds>::*picoseconds;
};
#define KVCAST_TTFT_PART(name, label, cause) \
  { #name, label, cause, &TtftParts < double> ::name, &TtftParts < Picoseconds> ::name }
inline constexpr TtftPart kTtftParts[] = {KVCAST_TTFT_PART(front_end, "front end", "HTTP and tokenising"),
                                          KVCAST_TTFT_PART(queue, "queue", "waiting"),
                                          KVCAST_TTFT_PART(prefill, "own prefill", "prefill"),
                                          KVCAST_TTFT_PART(beside, "others in its passes", "interference"),
                                          KVCAST_TTFT_PART(between, "passes of others", "interference")};
#undef KVCAST_TTFT_PART

inline TtftParts<Picoseconds> ttft_parts(const Outcome& o) {
  return {o.request.front_end, o.scheduled - o.request.arrival - o.request.front_end, o.reading_alone,
          o.reading - o.reading_alone, o.first_token - o.scheduled - o.reading};
}

}  // namespace kvcast::serving
