#include "serving/link.hpp"

#include <algorithm>
#include <cmath>

namespace kvcast::serving {
namespace {

constexpr double kRounding = 1e-3;  // picoseconds

}  // namespace

void LinkQueues::pass(Picoseconds time, double recalled) {
  const double seconds = to_seconds(time);
  const double room = std::max(0.0, seconds * rates_.in - recalled);
  const double in = std::min(sent_in_ - done_in_, room);
  const double left = std::max(0.0, std::min(seconds * rates_.out, seconds * rates_.both - recalled - in));
  const double out = std::min(sent_out_ - done_out_, left);
  // Rounding leaves nothing behind.
  done_in_ = in < room ? sent_in_ : done_in_ + in;
  done_out_ = out < left ? sent_out_ : done_out_ + out;
  carried_in_ += in + std::min(recalled, seconds * rates_.in);
  carried_out_ += out;
}

Picoseconds LinkQueues::until_in(double position) const {
  return is_in(position)
             ? 0
             : static_cast<Picoseconds>(std::ceil((position - done_in_) / rates_.in * 1e12 - kRounding)) + 1;
}

Picoseconds LinkQueues::time_in(double bytes, double recalled) const {
  return static_cast<Picoseconds>(std::ceil((sent_in_ - done_in_ + bytes + recalled) / rates_.in * 1e12 - kRounding));
}

}  // namespace kvcast::serving
