// The time of requests in spans: in the queue, in passes that read or decode them, preempted.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "serving/queue.hpp"

namespace kvcast::serving {

struct RequestSpan {
  enum class Kind { kQueued, kPrefill, kDecode, kPreempted };
  Kind kind = Kind::kQueued;
  std::int64_t request = 0;
  // The slot of kPrefill and kDecode, the smallest that was free when the request was admitted, or admitted again; for
  // the others the smallest row that is free for the span.
  std::int64_t row = 0;
  Picoseconds from = 0, to = 0;
  std::int64_t tokens = 0;  // read, generated; of kQueued those of the prompt; 0 of kPreempted
};
const char* span_name(RequestSpan::Kind kind);  // "queued"

// The smallest numbers that are free, from 0.
class FreeNumbers {
 public:
  std::int64_t take();
  void give_back(std::int64_t number) { returned_.push(number); }

 private:
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> returned_;
  std::int64_t next_ = 0;
};

// Keeps the first spans that end, up to a number of them. A decode span lasts as long as the request is in one pass
// directly after the other.
class SpanRecorder final : public QueueObserver {
 public:
  explicit SpanRecorder(std::size_t most) : most_(most) {}

  bool wants_parts() const override { return true; }
  void ran(const Passes& run) override;
  void preempted(const traffic::Request& request, Picoseconds now) override;
  void ended(const Departure& outcome) override;

  // In the order in which they ended; the spans of requests that wait have their rows.
  std::vector<RequestSpan> spans() const;
  std::int64_t all() const { return all_; }  // spans, kept or not

 private:
  struct Request {
    std::int64_t slot = -1;                 // -1: preempted
    Picoseconds since = 0, busy_until = 0;  // of the preemption; end of its last pass
    RequestSpan decode;                     // the one that goes on, if it has tokens
  };
  void keep(const RequestSpan& span);
  void close_decode(Request& request);

  std::size_t most_;
  std::int64_t all_ = 0;
  std::vector<RequestSpan> spans_;
  std::unordered_map<std::int64_t, Request> requests_;  // admitted, by id
  FreeNumbers slots_;
};

}  // namespace kvcast::serving
