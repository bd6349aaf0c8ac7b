// Water-filling over the fair resources. Most sets of ops need no filling: where no resource is overloaded at full
// speed, all run at full speed; and of two ops neither can go on after the other has stopped, since a resource that one
// fills alone it fills at speed 1. The loads are summed afresh each time, because sums kept up by adding and
// subtracting drift.
#include "engine/fluid.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::engine {

namespace {
// Resources that fill up at levels closer than this fill up together: far above rounding, far below what could be seen.
constexpr double kTie = 1 + 1e-12;
// Keeps a finish that no clock reaches apart from no finish at all.
constexpr double kFarthest = 1e300;
}  // namespace

Fluid::Fluid(std::size_t lanes, std::size_t resources) : work_(lanes), load_(resources, 0.0), used_(resources, 0.0) {
  active_.reserve(lanes);
  open_.reserve(lanes);
  touched_.reserve(resources);
}

void Fluid::add(std::uint16_t lane, double alone, std::span<const Share> shares, double since) {
  Work& work = work_[lane];
  work.left = alone;
  work.speed = 0;
  work.since = since;
  work.finish = kNever;
  work.shares.assign(shares.begin(), shares.end());
  active_.push_back(lane);
  changed_ = true;
}

void Fluid::set_speed(Work& work, double speed, double now) {
  if (speed != work.speed) {
    if (work.speed > 0) {
      work.left = std::max(0.0, work.left - work.speed * (now - work.since));
      work.since = now;
    }
    work.speed = speed;
    work.finish = std::min(work.since + work.left / speed, kFarthest);
  }
  next_finish_ = std::min(next_finish_, work.finish);
}

void Fluid::solve(double now) {
  if (!changed_) return;
  changed_ = false;
  next_finish_ = kNever;
  const double load = active_.size() > 1 ? heaviest_load() : 0;
  if (load <= 1) {
    for (const std::uint16_t lane : active_) set_speed(work_[lane], 1, now);
  } else if (active_.size() == 2) {
    for (const std::uint16_t lane : active_) set_speed(work_[lane], 1 / load, now);
  } else {
    fill_progressively(now);
  }
}

// The load of the resource with the most of it if all ops ran at full speed. Leaves load_ at zero.
double Fluid::heaviest_load() {
  double heaviest = 0;
  for (const std::uint16_t lane : active_) {
    for (const Share& share : work_[lane].shares) {
      load_[share.resource] += share.use;
      heaviest = std::max(heaviest, load_[share.resource]);
    }
  }
  for (const std::uint16_t lane : active_) {
    for (const Share& share : work_[lane].shares) load_[share.resource] = 0;
  }
  return heaviest;
}

// Each round raises the level to where the next resource is full and stops the ops that use it.
void Fluid::fill_progressively(double now) {
  open_.assign(active_.begin(), active_.end());
  for (const std::uint16_t lane : active_) {
    for (const Share& share : work_[lane].shares) used_[share.resource] = 0;
  }
  double level = 0;
  while (!open_.empty()) {
    tally_open_ops();
    level = std::min(1.0, next_level(level));
    const std::size_t before = open_.size();
    freeze_at(level, now);
    KVCAST_CHECK(open_.size() < before);
  }
}

// load_: what the ops that still grow use of each resource per unit of level; touched_: the resources that they use.
void Fluid::tally_open_ops() {
  touched_.clear();
  for (const std::uint16_t lane : open_) {
    for (const Share& share : work_[lane].shares) {
      if (load_[share.resource] == 0) touched_.push_back(share.resource);
      load_[share.resource] += share.use;
    }
  }
}

double Fluid::next_level(double reached) const {
  double level = kNever;
  for (const std::uint16_t r : touched_) level = std::min(level, (1 - used_[r]) / load_[r]);
  return std::max(level, reached);  // rounding may leave a full resource a little over 1
}

void Fluid::freeze_at(double level, double now) {
  // At level 1 the rest runs as fast as alone. Below, a resource is full when it can carry its ops no higher.
  const auto stops = [&](const Work& work) {
    return level >= 1 || std::any_of(work.shares.begin(), work.shares.end(), [&](const Share& share) {
             return 1 - used_[share.resource] <= load_[share.resource] * level * kTie;
           });
  };
  const auto stopped =
      std::stable_partition(open_.begin(), open_.end(), [&](std::uint16_t l) { return !stops(work_[l]); });
  for (auto lane = stopped; lane != open_.end(); ++lane) set_speed(work_[*lane], level, now);
  // Only now, so that every op was judged by the same usage.
  for (auto lane = stopped; lane != open_.end(); ++lane) {
    for (const Share& share : work_[*lane].shares) used_[share.resource] += share.use * level;
  }
  open_.erase(stopped, open_.end());
  for (const std::uint16_t r : touched_) load_[r] = 0;
}

void Fluid::take_finished(double limit, std::vector<std::uint16_t>& out) {
  if (next_finish_ > limit) return;
  for (std::size_t i = 0; i < active_.size();) {
    if (work_[active_[i]].finish > limit) {
      ++i;
      continue;
    }
    out.push_back(active_[i]);
    active_[i] = active_.back();
    active_.pop_back();
  }
  changed_ = true;
}

void Fluid::shift(double back) {
  for (const std::uint16_t lane : active_) {
    work_[lane].since -= back;
    work_[lane].finish -= back;
  }
  next_finish_ -= back;
}

}  // namespace kvcast::engine
