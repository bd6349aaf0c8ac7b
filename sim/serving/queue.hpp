// Serves requests: an engine's queue, its passes one after the other, and the memory that its requests hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/cancel.hpp"
#include "base/units.hpp"
#include "serving/footprint.hpp"
#include "serving/rules.hpp"
#include "serving/step_times.hpp"
#include "traffic/request.hpp"

namespace kvcast::serving {

// A request that has left.
struct Departure {
  traffic::Request request;
  bool rejected = false;                      // can never fit; its times are then those of the rejection
  Picoseconds scheduled = traffic::kNever;    // start of the first pass that reads it
  Picoseconds first_token = traffic::kNever;  // end of the pass that samples it
  Picoseconds last_token = traffic::kNever;
  std::int64_t preemptions = 0;
  std::int64_t hit_tokens = 0;         // found in caches when it was scheduled first
  std::int64_t loaded_tokens = 0;      // of them, those that came from behind the GPU
  std::int64_t recomputed_tokens = 0;  // read or decoded before, and computed again after a preemption
  std::int64_t replica = 0;            // that served it, or decoded it, from 0
  // The time to the first token (summary.hpp): in passes that read the request, and what these would take with its
  // chunks alone.
  Picoseconds reading = 0, reading_alone = 0;
  // Passes that read its prompt: the end of the first, the start of the last and the tokens of that.
  Picoseconds first_read = traffic::kNever, last_read = traffic::kNever;
  std::int64_t last_chunk = 0;
  // Prefill and decode apart: the end of its prompt, when it had memory where it is decoded, and when its cache had
  // come there; bytes that were sent.
  Picoseconds prefilled = traffic::kNever, reserved = traffic::kNever, received = traffic::kNever;
  double sent_bytes = 0;
  Picoseconds waited = 0;  // for a pass that reads it, and again after each preemption
};

// Sequences whose last token came `since` before the start of a run, 0 where they were in the pass before.
struct Gap {
  Picoseconds since = 0;
  std::int64_t sequences = 0;
};

// The work of a request in a pass.
struct PassPart {
  const traffic::Request* request = nullptr;
  std::int64_t tokens = 0;
  bool reads = false, samples = false;
};

// `count` passes of the same sequences, one directly after the other.
struct Passes {
  Picoseconds start = 0;
  StepTime time;  // of its passes: at(0) … at(count − 1)
  std::int64_t count = 1;
  std::int64_t decodes = 0;                 // sequences that decode
  std::int64_t reads = 0, read_tokens = 0;  // sequences that are read, and their tokens; count is 1 if there are any
  std::int64_t waiting = 0, running = 0;    // requests when it was composed, those of the run included in `running`
  std::int64_t waiting_before = 0;          // requests that waited until then
  std::int64_t blocks = 0;                  // in use by requests in the first pass
  // When the requests arrived that have come since then, in ascending order. They wait for the next run.
  std::span<const Picoseconds> arrivals;
  // All sequences that get a token that is not their first. Their inter-token latencies are since + at(0) in the
  // first pass, and at(j) in the others.
  std::span<const Gap> gaps;
  std::span<const PassPart> parts;  // of the first pass, if QueueObserver::wants_parts()
};

// Receives what happens, in order of time of the kind: runs by start, ends by time. A reference holds during the call.
class QueueObserver {
 public:
  virtual ~QueueObserver() = default;
  virtual void ended(const Departure& outcome) = 0;
  virtual void ran(const Passes& /*run*/) {}
  virtual void preempted(const traffic::Request& /*request*/, Picoseconds /*now*/) {}
  virtual bool wants_parts() const { return false; }
  // At the end: seconds for which the directions of a replica's link to its host carried something.
  virtual void carried(double /*in*/, double /*out*/) {}
};

// Receives the requests that leave an engine.
class Exit {
 public:
  virtual ~Exit() = default;
  // May complete the outcome, which the engine no longer needs.
  virtual void left(Departure& outcome, Picoseconds now) = 0;
  // A request whose prompt is read elsewhere has memory; its first `there` tokens need not be sent.
  virtual void reserved(const traffic::Request& /*request*/, std::int64_t /*there*/, Picoseconds /*now*/) {}
};

// The memory of a request. Requests may share one.
using FootprintOf = std::function<std::shared_ptr<const Footprint>(const traffic::Request&)>;

// Serves all requests of the source, until it has none and all have left. Throws Cancelled, and UserError as check()
// does. Two requests of the same content that have the same answer_key count as two copies of it.
void serve(traffic::RequestSource& source, StepTimes& times, const Rules& rules, const FootprintOf& footprint_of,
           QueueObserver& observer, const Cancel& cancel = {});

}  // namespace kvcast::serving
