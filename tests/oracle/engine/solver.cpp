// Discrete events without optimizations. An op goes through waiting → latency → ready → working → done. Time moves to
// the next end of a latency or of work, whichever comes first among all ops. Times within 1 ps are one instant, which
// affects the order but not the times.
#include "solver.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace oracle {

namespace {

constexpr Real kRounding = 1e-15L;          // seconds by which equal times may differ
constexpr Real kSame = 1e-12L + kRounding;  // times of one instant
constexpr Real kNever = std::numeric_limits<Real>::infinity();

enum class State { kWaiting, kLatency, kReady, kWorking, kDone };

struct Status {
  State state = State::kWaiting;
  Real ends = 0;  // of the latency
  long ready_instant = 0;
  Real ready = 0;
  Real since = 0;  // time at which `left` was computed
  Real left = 1;   // part of the work still to do
  Times times;
};

Real alone(const Graph& g, const Op& op) {
  Real longest = 0;
  for (const Demand& d : op.demands) {
    if (d.amount > 0) longest = std::max(longest, d.amount / g.resources[static_cast<std::size_t>(d.resource)].rate);
  }
  return longest;
}

// Part of a resource that an op uses when it runs as fast as alone.
Real use(const Graph& g, const Op& op, int resource) {
  Real amount = 0;
  for (const Demand& d : op.demands) {
    if (d.resource == resource) amount += d.amount;
  }
  return amount == 0 ? 0 : amount / g.resources[static_cast<std::size_t>(resource)].rate / alone(g, op);
}

class Solver {
 public:
  explicit Solver(const Graph& graph) : g_(graph), s_(graph.ops.size()) {}

  std::vector<Times> operator()() {
    while (true) {
      settle();
      std::vector<int> works = in_state(State::kWorking);
      // Work that ends within the instant under the present shares is settled before fifos are granted.
      if (next_end(works, speeds(g_, works)) > instant_ + kSame) {
        while (hand_out()) works = in_state(State::kWorking);
      }
      const std::vector<Real> speed = speeds(g_, works);
      const Real next = next_end(works, speed);
      if (next == kNever) break;
      move_to(std::max(next, now_), works, speed);
    }
    std::vector<Times> times;
    for (const Status& s : s_) times.push_back(s.times);
    return times;
  }

 private:
  const Op& op(int i) const { return g_.ops[static_cast<std::size_t>(i)]; }
  Status& st(int i) { return s_[static_cast<std::size_t>(i)]; }
  int count() const { return static_cast<int>(g_.ops.size()); }

  std::vector<int> in_state(State state) {
    std::vector<int> result;
    for (int i = 0; i < count(); ++i) {
      if (st(i).state == state) result.push_back(i);
    }
    return result;
  }

  bool may_start(int i) {
    for (int j = 0; j < i; ++j) {
      if (op(j).lane == op(i).lane && st(j).state != State::kDone) return false;
    }
    return std::all_of(op(i).after.begin(), op(i).after.end(), [&](int a) { return st(a).state == State::kDone; });
  }

  bool needs_fifo(int i) const {
    return std::any_of(op(i).demands.begin(), op(i).demands.end(), [&](const Demand& d) {
      return d.amount > 0 && g_.resources[static_cast<std::size_t>(d.resource)].fifo;
    });
  }

  void end_latency(int i) {
    if (alone(g_, op(i)) == 0) {
      finish(i);
    } else if (needs_fifo(i)) {
      st(i).state = State::kReady;
      st(i).ready_instant = instant_number_;
      st(i).ready = now_;
    } else {
      st(i).state = State::kWorking;
      st(i).since = now_;
    }
  }

  void finish(int i) {
    st(i).state = State::kDone;
    st(i).times.finish = now_;
  }

  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < count(); ++i) {
        if (st(i).state != State::kWaiting || !may_start(i)) continue;
        changed = true;
        st(i).times.start = now_;
        st(i).state = State::kLatency;
        st(i).ends = now_ + op(i).latency;
        if (op(i).latency == 0) end_latency(i);
      }
    }
  }

  bool is_free(int resource) {
    for (int i = 0; i < count(); ++i) {
      if (st(i).state == State::kWorking && use(g_, op(i), resource) > 0) return false;
    }
    return true;
  }

  Real free_since(int resource) {
    Real since = 0;
    for (int i = 0; i < count(); ++i) {
      if (st(i).state == State::kDone && use(g_, op(i), resource) > 0) since = std::max(since, st(i).times.finish);
    }
    return since;
  }

  // Starts the first op in ready order whose fifos are all free.
  bool hand_out() {
    std::vector<int> ready = in_state(State::kReady);
    std::stable_sort(ready.begin(), ready.end(),
                     [&](int a, int b) { return st(a).ready_instant < st(b).ready_instant; });
    for (const int i : ready) {
      const bool all_free = std::all_of(op(i).demands.begin(), op(i).demands.end(), [&](const Demand& d) {
        return d.amount == 0 || !g_.resources[static_cast<std::size_t>(d.resource)].fifo || is_free(d.resource);
      });
      if (!all_free) continue;
      st(i).state = State::kWorking;
      // Within this instant, it could have started once it was ready and the last of its fifos was free.
      st(i).since = st(i).ready;
      for (const Demand& d : op(i).demands) {
        const bool held = d.amount > 0 && g_.resources[static_cast<std::size_t>(d.resource)].fifo;
        if (held) st(i).since = std::max(st(i).since, free_since(d.resource));
      }
      return true;
    }
    return false;
  }

  Real next_end(const std::vector<int>& works, const std::vector<Real>& speed) {
    Real next = kNever;
    for (const int i : in_state(State::kLatency)) next = std::min(next, st(i).ends);
    for (std::size_t w = 0; w < works.size(); ++w) {
      next = std::min(next, st(works[w]).since + st(works[w]).left * alone(g_, op(works[w])) / speed[w]);
    }
    return next;
  }

  void move_to(Real time, const std::vector<int>& works, const std::vector<Real>& speed) {
    if (time > instant_ + kSame) {
      instant_ = time;
      ++instant_number_;
    }
    const Real limit = time + kRounding;
    std::vector<int> ended;
    for (std::size_t w = 0; w < works.size(); ++w) {
      Status& s = st(works[w]);
      const Real whole = alone(g_, op(works[w]));
      if (s.since + s.left * whole / speed[w] <= limit) ended.push_back(works[w]);
      s.left = std::max(Real{0}, s.left - (time - s.since) * speed[w] / whole);
      s.since = time;
    }
    now_ = time;
    for (const int i : ended) finish(i);
    for (const int i : in_state(State::kLatency)) {
      if (st(i).ends <= limit) end_latency(i);
    }
  }

  const Graph& g_;
  std::vector<Status> s_;
  Real now_ = 0, instant_ = 0;  // instant_: first time of the instant in progress
  long instant_number_ = 0;
};

}  // namespace

std::vector<Real> speeds(const Graph& g, const std::vector<int>& works) {
  const std::size_t n = works.size(), resources = g.resources.size();
  std::vector<std::vector<Real>> uses(resources, std::vector<Real>(n));
  for (std::size_t r = 0; r < resources; ++r) {
    for (std::size_t w = 0; w < n; ++w) {
      uses[r][w] = use(g, g.ops[static_cast<std::size_t>(works[w])], static_cast<int>(r));
    }
  }
  std::vector<Real> speed(n, 0);
  std::vector<bool> stopped(n, false);
  const auto weight = [&](std::size_t w) { return g.ops[static_cast<std::size_t>(works[w])].weight; };
  const auto load = [&](std::size_t r, const std::vector<Real>& v) {
    return std::inner_product(v.begin(), v.end(), uses[r].begin(), Real{0});
  };
  const auto raised = [&](Real level) {
    std::vector<Real> v = speed;
    for (std::size_t w = 0; w < n; ++w) {
      if (!stopped[w]) v[w] = std::min(Real{1}, weight(w) * level);
    }
    return v;
  };
  const auto fits = [&](Real level) {
    const std::vector<Real> v = raised(level);
    for (std::size_t r = 0; r < resources; ++r) {
      if (load(r, v) > 1 + 1e-15L) return false;
    }
    return true;
  };
  while (std::find(stopped.begin(), stopped.end(), false) != stopped.end()) {
    // The highest common level of those that still grow; at `most` the slowest of them runs as fast as alone, ...
    Real most = 0;
    for (std::size_t w = 0; w < n; ++w) {
      if (!stopped[w]) most = std::max(most, 1 / weight(w));
    }
    Real low = fits(most) ? most : 0, high = most;
    for (int i = 0; i < 64 && low < most; ++i) {
      const Real middle = (low + high) / 2;
      (fits(middle) ? low : high) = middle;
    }
    speed = raised(low);
    // ... and those of them stop that use a resource which is now full, or run as fast as alone.
    for (std::size_t w = 0; w < n; ++w) stopped[w] = stopped[w] || speed[w] >= 1 || low == most;
    for (std::size_t r = 0; r < resources; ++r) {
      if (load(r, speed) < 1 - 1e-12L) continue;
      for (std::size_t w = 0; w < n; ++w) {
        if (uses[r][w] > 0) stopped[w] = true;
      }
    }
  }
  return speed;
}

std::vector<Times> solve(const Graph& graph) { return Solver(graph)(); }

}  // namespace oracle
