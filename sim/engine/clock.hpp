// The engine's clock. Whole picoseconds would lose up to half a picosecond per op, more than a millionth of the time of
// a chain of short ops; a double that counts from the start would lose its picoseconds after an hour. Time is therefore
// a whole origin plus a double offset, and the origin advances.
#pragma once

#include <cmath>

#include "base/error.hpp"
#include "base/units.hpp"

namespace kvcast::engine {

// Largest difference of two equal times by rounding, in picoseconds: enough for ops of 10 s, and negligible compared
// with any op.
inline constexpr double kRounding = 1e-3;
// Times at most this far behind the first of an instant belong to it.
inline constexpr double kInstantWidth = 1 + kRounding;

class Clock {
 public:
  // Picoseconds after the origin.
  double now() const { return now_; }
  Picoseconds absolute() const { return absolute(now_); }
  // Converts a time near now to picoseconds from the start.
  Picoseconds absolute(double time) const { return origin_ + static_cast<Picoseconds>(std::floor(time + 0.5)); }
  // The last time that still belongs to the instant in progress.
  double instant_end() const { return instant_ + kInstantWidth; }
  // Number of the instant in progress.
  std::int64_t instant() const { return instant_number_; }

  // Advances to a time not before now. A time beyond the instant in progress opens the next one.
  void advance(double to) {
    KVCAST_CHECK(to >= now_);
    now_ = to;
    if (to > instant_end()) {
      instant_ = to;
      ++instant_number_;
    }
  }

  // Now and then the origin must follow the clock; all times kept as offsets must then be moved back by the result. At
  // 2^30 ps (1 ms) the offset still resolves 2^-23 ps.
  bool wants_new_origin() const { return now_ >= kTurn; }
  double new_origin() {
    if (!(static_cast<double>(origin_) + now_ < kEnd)) throw UserError("the simulated time passes 2^62 ps (53 days)");
    const Picoseconds step = static_cast<Picoseconds>(now_) / kWholeTurn * kWholeTurn;
    origin_ += step;
    now_ -= static_cast<double>(step);
    instant_ -= static_cast<double>(step);
    return static_cast<double>(step);
  }

 private:
  static constexpr Picoseconds kWholeTurn = Picoseconds{1} << 30;
  static constexpr double kTurn = static_cast<double>(kWholeTurn);
  static constexpr double kEnd = static_cast<double>(Picoseconds{1} << 62);

  Picoseconds origin_ = 0;
  double now_ = 0;
  double instant_ = 0;  // first time of the instant in progress
  std::int64_t instant_number_ = 0;
};

}  // namespace kvcast::engine
