// Fair resources: the speeds of the working ops, and the time at which the next of them is done.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace kvcast::engine {

// Use of a fair resource by an op at full speed, as a fraction of the resource's rate; in (0, 1].
struct Share {
  std::uint16_t resource = 0;
  double use = 0;
};

// The working ops, at most one per lane, which identifies it. Speed 1 is that of an op alone; an op at speed v uses
// v × use of each of its resources. An op's largest use over all its resources, fifo ones included, is 1: its dominant
// share equals its speed.
//
// Progressive filling (dominant resource fairness, weighted; Ghodsi et al., NSDI 2011): the speeds of all ops grow from
// 0, each in proportion to its weight. An op stops when a resource of its own is full, or at speed 1; the others go on.
//
// Times are picoseconds after the clock's origin. Speeds change only when solve() is called.
class Fluid {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Fluid(std::size_t lanes, std::size_t resources);

  // The lane's op works from `since` on, now or shortly before; alone it would take `alone` picoseconds. The shares
  // must stay valid until the op has finished.
  void add(std::uint16_t lane, double alone, std::span<const Share> shares, double since, double weight = 1) {
    working_.push_back({alone, 0, since, kNever, shares, lane, weight});
    changed_ = true;
  }
  // Brings the speeds up to date with the set of ops.
  void solve(double now) {
    if (changed_) set_speeds(now);
  }
  // Time of the next finish, kNever without ops; call solve() first.
  double next_finish() const { return next_finish_; }
  // Removes the ops that finish up to `limit` and appends their lanes to `out`; call solve() first.
  void take_finished(double limit, std::vector<std::uint16_t>& out);
  // The clock's origin has moved on.
  void shift(double back);
  // Speed of a working op, for tests.
  double speed(std::uint16_t lane) const;

 private:
  // The work left at `since`, and what follows from it as long as the speed does not change: an op loses accuracy with
  // the changes of its own speed and not with every event around it.
  struct Working {
    double left;  // picoseconds at speed 1
    double speed;
    double since;
    double finish;
    std::span<const Share> shares;
    std::uint16_t lane;
    double weight;
  };
  // State of a resource while speeds are computed.
  struct Usage {
    double whole = 0;  // use by the ops that still grow, at full speed
    double load = 0;   // use per unit of level by the same ops
    double used = 0;   // by the ops that have stopped
    bool full = false;
  };

  void set_speeds(double now);
  void set_all(double speed, double now);
  void fill_progressively(double now);
  void tally_open_ops();
  double heaviest_load() const;
  double next_level(double reached) const;
  void freeze_at(double level, double now);
  void set_speed(Working& op, double speed, double now);

  std::vector<Working> working_;
  std::vector<Usage> usage_;            // by resource
  std::vector<Working*> open_;          // the ops that still grow
  std::vector<std::uint16_t> touched_;  // the resources of the open ops
  bool changed_ = false;
  double next_finish_ = kNever;
};

}  // namespace kvcast::engine
