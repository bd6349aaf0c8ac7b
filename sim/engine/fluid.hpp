// Fair resources: how fast each working op runs beside the others, and when it is done.
#pragma once

#include <boost/container/small_vector.hpp>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace kvcast::engine {

// What an op uses of a fair resource while it runs at full speed, as a fraction of the resource's rate; in (0, 1].
struct Share {
  std::uint16_t resource = 0;
  double use = 0;
};

// The ops at work, at most one a lane, which names it. Speed 1 is that of an op alone; an op at speed v uses v × use of
// each of its resources. An op's largest use over all its resources, fifo ones included, is 1: its dominant share
// equals its speed.
//
// Progressive filling (dominant resource fairness; Ghodsi et al., NSDI 2011): the speeds of all ops grow from 0 at the
// same pace. An op stops when a resource of its own is full, or at speed 1; the others go on.
//
// Times are picoseconds after the clock's origin. Speeds follow a change of the set of ops when solve() is called, and
// only then.
class Fluid {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Fluid(std::size_t lanes, std::size_t resources);

  // The op of the lane works from `since` on, now or shortly before; alone it would take `alone` picoseconds.
  void add(std::uint16_t lane, double alone, std::span<const Share> shares, double since);
  bool empty() const { return active_.empty(); }
  // Brings the speeds up to date with the set of ops.
  void solve(double now);
  // The next finish, kNever without ops; solve() first.
  double next_finish() const { return next_finish_; }
  // Removes the ops that finish up to `limit` and appends their lanes to `out`; solve() first.
  void take_finished(double limit, std::vector<std::uint16_t>& out);
  // The clock's origin has moved on.
  void shift(double back);
  // For tests: the speed of a working op.
  double speed(std::uint16_t lane) const { return work_[lane].speed; }

 private:
  // The work left at `since`, and what follows of it as long as the speed does not change: kept so, an op loses
  // accuracy with the changes of its speed and not with every event around it.
  struct Work {
    double left = 0;  // picoseconds at speed 1
    double speed = 0;
    double since = 0;
    double finish = kNever;
    boost::container::small_vector<Share, 4> shares;
  };

  double heaviest_load();
  void fill_progressively(double now);
  void tally_open_ops();
  double next_level(double reached) const;
  void freeze_at(double level, double now);
  void set_speed(Work& work, double speed, double now);

  std::vector<Work> work_;             // by lane
  std::vector<std::uint16_t> active_;  // lanes at work
  std::vector<double> load_, used_;    // by resource; scratch
  std::vector<std::uint16_t> open_, touched_;
  bool changed_ = false;
  double next_finish_ = kNever;
};

}  // namespace kvcast::engine
