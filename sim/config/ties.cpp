// A table of ties is walked once from top to bottom. A number moves only with one above or left of it in the link's
// chain theory -> single directions -> both directions, so that nothing moves in circles.
//
// Not tied, since nothing in the physics says so: dram_bandwidth to cores (memory channels do not follow cores), copy
// and launch latencies to bandwidths, l2_capacity to sm_count, d2h_bandwidth to h2d_bandwidth. Efficiencies, and times
// that are stated at floor_clock, follow by themselves (hardware/kernels.cpp).

#include "config/ties.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"

namespace kvcast::config {
namespace {

enum class How {
  kInProportion,  // proportional to the leader
  kAtLeast,       // raised to the leader
  kAtMost,        // lowered to the leader
  kHeadroom,      // a limit: raised with the leader once the leader exceeds it
  kStaged,        // in proportion, but not above the rate at which one core of the host copies
  kBothWays,      // the sum of both directions keeps its ratio to the single ones
  kBelowPinned,   // lowered to the faster direction
};

// Limits apply whichever side has moved: fewer SMs slow down an L2 that is only as fast as the memory.
bool is_limit(How how) { return how == How::kAtLeast || how == How::kAtMost || how == How::kBelowPinned; }

struct Tie {
  const char* leader;
  const char* follower;
  How how;
  const char* rule;
};

// NVIDIA data sheets and architecture white papers: peak = SMs x FLOP per SM and cycle x clock; the L2 serves each SM a
// fixed number of bytes per cycle.
constexpr const char* kPeak = "peaks are SMs times operations of an SM and cycle times clock";
constexpr const char* kL2 = "the L2 serves each SM a fixed number of bytes per cycle";
constexpr const char* kMemory = "the L2 is no slower than the memory behind it";
// te42kyfo/gpu-benches, NVIDIA/nvbandwidth, vLLM: 0.78, 0.79 and 0.83 of theory on PCIe 3.0, 4.0 and 5.0.
constexpr const char* kShare = "copies reach about the same share of a link's theory from one generation to the next";
constexpr const char* kLimit = "no copy exceeds the link's theory, so a faster one needs a faster link";
// 0.79, 0.78 and 0.79 of the sum on the same links.
constexpr const char* kDuplex = "both directions together reach the same share of the sum of the single ones";

constexpr Tie kTies[] = {
    {"gpu.clock", "gpu.tensor_flops", How::kInProportion, kPeak},
    {"gpu.clock", "gpu.vector_flops", How::kInProportion, kPeak},
    {"gpu.clock", "gpu.l2_bandwidth", How::kInProportion, kL2},
    {"gpu.clock", "gpu.attention_mha.l2_bandwidth", How::kInProportion, kL2},
    {"gpu.sm_count", "gpu.tensor_flops", How::kInProportion, kPeak},
    {"gpu.sm_count", "gpu.vector_flops", How::kInProportion, kPeak},
    {"gpu.sm_count", "gpu.l2_bandwidth", How::kInProportion, kL2},
    {"gpu.sm_count", "gpu.attention_mha.l2_bandwidth", How::kInProportion, kL2},
    {"gpu.hbm_bandwidth", "gpu.l2_bandwidth", How::kAtLeast, kMemory},
    {"gpu.hbm_bandwidth", "gpu.attention_mha.l2_bandwidth", How::kAtLeast, kMemory},
    {"gpu.gap_stream", "gpu.gap_graph", How::kAtMost, "kernels in a CUDA graph are no further apart than in a stream"},
    {"link.theory_bandwidth", "link.h2d_bandwidth", How::kInProportion, kShare},
    {"link.theory_bandwidth", "link.d2h_bandwidth", How::kInProportion, kShare},
    {"link.theory_bandwidth", "link.pageable_bandwidth", How::kStaged,
     "one core copies pageable memory into the driver's buffer: it follows the link up to host.core_bandwidth"},
    {"link.h2d_bandwidth", "link.theory_bandwidth", How::kHeadroom, kLimit},
    {"link.d2h_bandwidth", "link.theory_bandwidth", How::kHeadroom, kLimit},
    {"link.h2d_bandwidth", "link.both_bandwidth", How::kBothWays, kDuplex},
    {"link.d2h_bandwidth", "link.both_bandwidth", How::kBothWays, kDuplex},
    {"link.h2d_bandwidth", "link.pageable_bandwidth", How::kBelowPinned, "pageable copies are no faster than pinned"},
    {"link.d2h_bandwidth", "link.pageable_bandwidth", How::kBelowPinned, "pageable copies are no faster than pinned"},
    {"host.dram_bandwidth", "host.core_bandwidth", How::kAtMost, "one core reads no faster than the memory"},
};

constexpr double kGrowthPerDoubling = 0.05;  // added uncertainty; the spread of the shares above is 2 to 5 %

struct Number {
  const ConstKnob* base;
  const Knob* now;
};

double largest(const std::vector<double>& y) { return *std::ranges::max_element(y); }

template <typename AKnob>
double value_in(const AKnob& knob) {
  return knob.value != nullptr ? knob.value->value : largest(knob.curve->y);
}

class Mover {
 public:
  Mover(const Hardware& machine, const std::vector<Knob>& now, const Hardware& base, const std::set<std::string>& set)
      : machine_(machine), now_(now), base_(base), before_(knobs(base)), is_set_(set) {
    KVCAST_CHECK(now_.size() == before_.size());
  }

  void follow(const Tie& tie) {
    const auto leader = find(tie.leader), follower = find(tie.follower);
    if (!leader || !follower || is_set_.count(tie.follower) > 0) return;
    const double now = leader->now->value->value, factor = now / leader->base->value->value;
    if (!is_limit(tie.how) && factor == 1) return;
    if (follower->now->curve != nullptr) return cap(tie, now, *follower);
    double& value = follower->now->value->value;
    const double moved = value_of(tie, factor, now, *follower);
    if (moved == value) return;
    value = moved;
    note(tie);
  }

  std::vector<MachineChange> finish() {
    std::vector<MachineChange> moved;
    for (MachineChange& change : changes_) {
      const Number number = find(change.key).value();
      const double before = value_in(*number.base), after = value_in(*number.now);
      if (after == before) continue;  // held back by a limit
      const double doublings = before > 0 && after > 0 ? std::log2(after / before) : 0;
      const bool is_curve = number.now->curve != nullptr;
      change.base = exact_text(before, number.now->y);
      change.value = (is_curve ? "at most " : "") + exact_text(after, number.now->y);
      const auto carry = [&](auto& it) {
        it.origin = worse(it.origin, Origin::kExtrapolated);
        it.uncertainty = std::hypot(it.uncertainty, kGrowthPerDoubling * doublings);
        it.source = fmt::format("moved with {}: {}", change.follows, it.source);
      };
      is_curve ? carry(*number.now->curve) : carry(*number.now->value);
      moved.push_back(std::move(change));
    }
    return moved;
  }

 private:
  std::optional<Number> find(std::string_view key) const {
    const auto at = std::ranges::find_if(now_, [&](const Knob& knob) { return knob.key == key; });
    if (at == now_.end()) return {};
    return Number{&before_[static_cast<std::size_t>(at - now_.begin())], &*at};
  }

  double value_of(const Tie& tie, double factor, double leader, const Number& follower) const {
    const Link &link = machine_.link, &before = base_.link;
    const double value = follower.now->value->value;
    switch (tie.how) {
      case How::kInProportion:
        return value * factor;
      case How::kAtLeast:
        return std::max(value, leader);
      case How::kAtMost:
        return std::min(value, leader);
      case How::kHeadroom:
        return leader > value ? follower.base->value->value * factor : value;
      case How::kStaged:
        return std::min(value * factor, std::max(value, machine_.host.core_bandwidth.y.back()));
      case How::kBothWays: {
        const double share = before.both_bandwidth / (before.h2d_bandwidth + before.d2h_bandwidth);
        const double sum = link.h2d_bandwidth + link.d2h_bandwidth;
        return std::max({share * sum, link.h2d_bandwidth.value, link.d2h_bandwidth.value});
      }
      case How::kBelowPinned:
        return std::min(value, std::max(link.h2d_bandwidth.value, link.d2h_bandwidth.value));
    }
    KVCAST_CHECK(!"a tie without a meaning");
    return value;
  }

  void cap(const Tie& tie, double limit, const Number& follower) {
    KVCAST_CHECK(tie.how == How::kAtMost);
    std::vector<double>& y = follower.now->curve->y;
    if (largest(y) <= limit) return;
    for (double& one : y) one = std::min(one, limit);
    note(tie);
  }

  // A number that moves twice is listed once, with both numbers that it follows.
  void note(const Tie& tie) {
    for (MachineChange& change : changes_) {
      if (change.key != tie.follower) continue;
      if (change.follows.find(tie.leader) == std::string::npos) change.follows += std::string(", ") + tie.leader;
      if (change.rule.find(tie.rule) == std::string::npos) change.rule += std::string("; ") + tie.rule;
      return;
    }
    changes_.push_back({tie.follower, "", "", tie.leader, tie.rule});
  }

  const Hardware& machine_;
  const std::vector<Knob>& now_;
  const Hardware& base_;
  const std::vector<ConstKnob> before_;
  const std::set<std::string>& is_set_;
  std::vector<MachineChange> changes_;
};

}  // namespace

std::vector<MachineChange> move_tied(const Hardware& machine, const std::vector<Knob>& now, const Hardware& base,
                                     const std::set<std::string>& set) {
  Mover mover(machine, now, base, set);
  for (const Tie& tie : kTies) mover.follow(tie);
  return mover.finish();
}

std::string exact_text(double value, Dimension dimension, int digits) {
  const std::string rounded = format_quantity(value, dimension);
  const std::size_t blank = rounded.find(' ');
  const std::string unit = blank == std::string::npos ? "" : rounded.substr(blank);
  const double one = parse_quantity("1" + unit, dimension).value();
  return fmt::format("{:.{}g}{}", value / one, digits, unit);
}

}  // namespace kvcast::config
