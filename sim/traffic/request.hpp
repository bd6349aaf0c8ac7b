// Requests of a service, and where they come from.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.hpp"

namespace kvcast::traffic {

inline constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();

// A part of a prompt's content: parts with the same key and equal parts before them are the same tokens.
struct Segment {
  std::uint64_t key = 0;
  std::int64_t tokens = 0;
  bool operator==(const Segment&) const = default;
};

struct Request {
  std::int64_t id = 0;  // in the order in which the source hands them over, from 0
  Picoseconds arrival = 0;
  Picoseconds front_end = 0;                          // from its arrival until it reaches the engine (front_end.hpp)
  std::int64_t prompt_tokens = 1, output_tokens = 1;  // at least 1 each
  // The prompt from its start on; what no segment covers is the request's own. Generated tokens are always its own,
  // except that a later turn of the session has them in its prompt (answer_key).
  std::vector<Segment> content;
  std::uint64_t answer_key = 0;  // key of the generated tokens as later prompts name them; 0: none does
  std::int64_t session = -1;     // requests of a session follow each other; -1: none
  std::int32_t turn = 0;         // within the session, from 0

  Picoseconds at_engine() const { return arrival + front_end; }
};

// Requests in the order of their arrival. Those of closed loops and sessions arrive a while after others have ended.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // Arrival of the request that take() returns; kNever if none will arrive before another one ends.
  virtual Picoseconds next() = 0;
  virtual Request take() = 0;
  // Returns whether requests arrive whatever becomes of others: ended() then has no effect, and need not be called.
  virtual bool open() const { return false; }
  // Called when a request has its last token, or has been rejected, at `now`: not before next() of requests that were
  // taken. Later requests may follow from it, none earlier than `now`.
  virtual void ended(const Request& request, Picoseconds now) = 0;
};

}  // namespace kvcast::traffic
