// Makes the source of requests that a run's traffic describes.
#pragma once

#include <cstdint>
#include <memory>

#include "config/traffic.hpp"
#include "traffic/request.hpp"

namespace kvcast::traffic {

// Requests that are drawn, or those of a trace (trace.hpp lists the formats).
//
// Random numbers are keyed by the seed, the number of the request and their purpose: the n-th request has the same
// lengths, group and gap to the one before whatever the rate, the policy and the scheduler; a rate only scales the
// gaps. A closed loop numbers its requests in the order in which they are sent. The first gap is that before the first
// request. Turns of sessions are numbered by session and turn: first turns arrive at rate / turns, or so many sessions
// run at a time, and the last session has as many turns as are missing from `requests`.
//
// Arrivals of a trace are as recorded, whatever the service does, divided by the speedup; the first request arrives at
// 0, except in kvcast's own format, whose times are as written.
//
// Throws UserError for a file that cannot be read or is malformed; the sources of traces also do so later, when they
// have read on. Simulated time ends at kNever / 2: what is drawn to arrive later arrives then, a row of a trace that
// does is an error.
std::unique_ptr<RequestSource> make_source(const config::Traffic& traffic);

}  // namespace kvcast::traffic
