// The link between a replica's GPU and its host, shared by all that use it.
#pragma once

#include "base/units.hpp"

namespace kvcast::serving {

// Bytes a second: host to device, device to host, and in total when both directions are busy.
struct LinkRates {
  double in = 0, out = 0, both = 0;
};

// An account of the link's time. What decoding recalls is part of a pass and goes first; then what requests wait for
// (in), then copies to the host (out). Both directions are queues; together they never carry more than the link can.
class LinkQueues {
 public:
  explicit LinkQueues(const LinkRates& rates) : rates_(rates) {}

  // Queues bytes. Returns the position in the queue at which they end.
  double send_in(double bytes) { return sent_in_ += bytes; }
  double send_out(double bytes) { return sent_out_ += bytes; }
  double sent_out() const { return sent_out_; }
  double seconds_out(double bytes) const { return bytes / rates_.out; }
  // Goes on for a time, in which the passes recall so many bytes.
  void pass(Picoseconds time, double recalled);

  // To a byte, which sums of many bytes round to.
  bool is_in(double position) const { return done_in_ >= position - 1; }
  bool is_out(double position) const { return done_out_ >= position - 1; }
  // Time until the position is in, if nothing else uses the link.
  Picoseconds until_in(double position) const;
  // Likewise until bytes are in that join the queue now, next to a recall.
  Picoseconds time_in(double bytes, double recalled) const;

  // Seconds that each direction has carried something.
  double busy_in() const { return carried_in_ > 0 ? carried_in_ / rates_.in : 0; }
  double busy_out() const { return carried_out_ > 0 ? carried_out_ / rates_.out : 0; }

 private:
  LinkRates rates_;
  double sent_in_ = 0, done_in_ = 0, sent_out_ = 0, done_out_ = 0;  // bytes
  double carried_in_ = 0, carried_out_ = 0;                         // bytes, recalls included
};

}  // namespace kvcast::serving
