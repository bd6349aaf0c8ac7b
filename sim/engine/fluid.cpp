// Water-filling over the fair resources. Most sets of ops need no filling: if no resource is overloaded at full speed,
// all run at full speed; and of two ops of equal weight neither can continue after the other has stopped, since a
// resource that one fills alone it fills at speed 1. The loads are summed afresh each time, because sums maintained by
// adding and subtracting drift.
#include "engine/fluid.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::engine {

namespace {
// Resources that fill up at levels closer than this fill up together: far above rounding, far below any visible effect.
constexpr double kTie = 1 + 1e-12;
// Distinguishes a finish that no clock reaches from no finish at all.
constexpr double kFarthest = 1e300;
}  // namespace

Fluid::Fluid(std::size_t lanes, std::size_t resources) : usage_(resources) {
  working_.reserve(lanes);
  open_.reserve(lanes);
  touched_.reserve(resources);
}

void Fluid::set_speed(Working& op, double speed, double now) {
  if (speed != op.speed) {
    if (op.speed > 0) {
      op.left = std::max(0.0, op.left - op.speed * (now - op.since));
      op.since = now;
    }
    op.speed = speed;
    op.finish = std::min(op.since + op.left / speed, kFarthest);
  }
  next_finish_ = std::min(next_finish_, op.finish);
}

void Fluid::set_all(double speed, double now) {
  for (Working& op : working_) set_speed(op, speed, now);
}

void Fluid::set_speeds(double now) {
  changed_ = false;
  next_finish_ = kNever;
  if (working_.size() <= 1) return set_all(1, now);
  open_.clear();
  for (Working& op : working_) open_.push_back(&op);
  tally_open_ops();
  const double load = heaviest_load();
  if (load <= 1) {
    set_all(1, now);
  } else if (working_.size() == 2 && working_[0].weight == working_[1].weight) {
    set_all(1 / load, now);
  } else {
    fill_progressively(now);
  }
}

void Fluid::tally_open_ops() {
  for (const std::uint16_t r : touched_) usage_[r].whole = usage_[r].load = 0;
  touched_.clear();
  for (const Working* op : open_) {
    for (const Share& share : op->shares) {
      Usage& usage = usage_[share.resource];
      if (usage.whole == 0) touched_.push_back(share.resource);
      usage.whole += share.use;
      usage.load += share.use * op->weight;
    }
  }
}

// Load of the most loaded resource if all ops ran at full speed.
double Fluid::heaviest_load() const {
  double heaviest = 0;
  for (const std::uint16_t r : touched_) heaviest = std::max(heaviest, usage_[r].whole);
  return heaviest;
}

// Requires that all ops are open and tallied. Each round raises the level to where the next resource is full and stops
// the ops that use it, or to where the next op runs as fast as alone.
void Fluid::fill_progressively(double now) {
  for (const std::uint16_t r : touched_) usage_[r].used = 0;
  double level = 0;
  while (true) {
    level = next_level(level);
    const std::size_t before = open_.size();
    freeze_at(level, now);
    KVCAST_CHECK(open_.size() < before);
    if (open_.empty()) return;
    tally_open_ops();
  }
}

double Fluid::next_level(double reached) const {
  double level = kNever;
  for (const std::uint16_t r : touched_) level = std::min(level, (1 - usage_[r].used) / usage_[r].load);
  for (const Working* op : open_) level = std::min(level, 1 / op->weight);
  return std::max(level, reached);  // rounding may leave a full resource a little over 1
}

void Fluid::freeze_at(double level, double now) {
  // A resource is full when it can carry its ops no higher. All are judged before the first op stops and adds to their
  // usage.
  for (const std::uint16_t r : touched_) {
    Usage& usage = usage_[r];
    usage.full = 1 - usage.used <= usage.load * level * kTie;
  }
  std::size_t kept = 0;
  for (Working* op : open_) {
    const auto is_full = [&](const Share& share) { return usage_[share.resource].full; };
    const double speed = std::min(1.0, level * op->weight);
    if (speed * kTie < 1 && std::ranges::none_of(op->shares, is_full)) {
      open_[kept++] = op;
      continue;
    }
    set_speed(*op, speed, now);
    for (const Share& share : op->shares) usage_[share.resource].used += share.use * speed;
  }
  open_.resize(kept);
}

void Fluid::take_finished(double limit, std::vector<std::uint16_t>& out) {
  if (next_finish_ > limit) return;
  for (std::size_t i = 0; i < working_.size();) {
    if (working_[i].finish > limit) {
      ++i;
      continue;
    }
    out.push_back(working_[i].lane);
    working_[i] = working_.back();
    working_.pop_back();
  }
  changed_ = true;
}

void Fluid::shift(double back) {
  for (Working& op : working_) {
    op.since -= back;
    op.finish -= back;
  }
  next_finish_ -= back;
}

double Fluid::speed(std::uint16_t lane) const {
  const auto op = std::ranges::find_if(working_, [&](const Working& w) { return w.lane == lane; });
  KVCAST_CHECK(op != working_.end());
  return op->speed;
}

}  // namespace kvcast::engine
