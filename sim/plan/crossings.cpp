#include "plan/crossings.hpp"

#include <algorithm>
#include <optional>

namespace kvcast::plan {
namespace {

constexpr int kGridSteps = 4;   // initial steps of a range
constexpr int kMostSteps = 40;  // halving closes any bracket in fewer

}  // namespace

bool misfits(const ResultPtr& r) { return r && r->status == result::Status::kOom; }

double memory_fill(const result::Result& r) {
  const auto fill = [](const result::PoolUse& pool) { return pool.capacity > 0 ? pool.peak / pool.capacity : 0; };
  return std::max(fill(r.experiment.hbm), fill(r.experiment.dram));
}

double KeyRange::between(double low, double high, double share) const {
  const double x = low > 0 && high / low > 1.5 ? low * std::pow(high / low, share) : low + share * (high - low);
  return integer ? std::clamp(std::round(x), low, high) : x;
}

std::vector<double> KeyRange::values(int steps) const {
  std::vector<double> all;
  for (int i = 0; i <= steps; ++i) {
    const double share = static_cast<double>(i) / steps;
    double x = is_logarithmic() ? from * std::pow(to / from, share) : from + share * (to - from);
    if (integer) x = std::round(x);
    if (all.empty() || x > all.back()) all.push_back(x);
  }
  all.back() = to;
  return all;
}

void Crossings::add(const std::vector<double>& xs, const Bracket& between) {
  for (VariantPair& s : evaluate_(xs, between)) samples_[s.x] = std::move(s);
}

namespace {

// Extreme of a parabola through three samples, the middle one of which is closest to a tie, if the parabola crosses 1
// between them.
std::optional<double> extreme(const KeyRange& range, const VariantPair& a, const VariantPair& b, const VariantPair& c) {
  const auto u = [&](const VariantPair& s) { return range.is_logarithmic() ? std::log(s.x) : s.x; };
  const double fa = a.log_times(), fb = b.log_times(), fc = c.log_times();
  if (std::abs(fb) > std::abs(fa) || std::abs(fb) > std::abs(fc)) return {};
  const double da = (fb - fa) / (u(b) - u(a)), dc = (fc - fb) / (u(c) - u(b));
  const double curvature = (dc - da) / (u(c) - u(a));
  if (curvature == 0) return {};
  const double vertex = (u(a) + u(b)) / 2 - da / (2 * curvature);
  const double value = fa + da * (vertex - u(a)) + curvature * (vertex - u(a)) * (vertex - u(b));
  if (value * fb > 0) return {};
  double x = range.is_logarithmic() ? std::exp(vertex) : vertex;
  if (range.integer) x = std::round(x);
  return x > a.x && x < c.x && x != b.x ? std::optional(x) : std::nullopt;
}

}  // namespace

void Crossings::add_dips() {
  std::vector<double> extremes;
  for (auto at = samples_.begin(); std::distance(at, samples_.end()) > 2; ++at) {
    const VariantPair &a = at->second, &b = std::next(at)->second, &c = std::next(at, 2)->second;
    if (a.state != b.state || b.state != c.state || !a.finite() || !b.finite() || !c.finite()) continue;
    if (const auto x = extreme(range_, a, b, c)) extremes.push_back(*x);
  }
  if (!extremes.empty()) add(extremes);
}

// Closes every bracket at only one end of which something fits, if it is not the better one that changes.
void Crossings::close_fits() {
  const auto fits = [](const VariantPair& s) { return s.state != 0 && (s.against || !misfits(s.of)); };
  std::vector<std::pair<double, double>> brackets;
  for (auto at = samples_.begin(); std::next(at) != samples_.end(); ++at) {
    const VariantPair &low = at->second, &high = std::next(at)->second;
    if (fits(low) != fits(high) && low.state * high.state >= 0) brackets.emplace_back(low.x, high.x);
  }
  for (auto [low, high] : brackets) {
    const bool fits_below = fits(samples_.at(low));
    while (!is_closed(low, high)) {
      const double middle = range_.between(low, high, 0.5);
      if (middle <= low || middle >= high) break;
      add({middle});
      (fits(samples_.at(middle)) == fits_below ? low : high) = middle;
    }
  }
}

std::vector<Crossing> Crossings::find() {
  add(range_.values(kGridSteps));
  add_dips();
  close_fits();
  std::vector<std::pair<double, double>> brackets;
  for (auto at = samples_.begin(); std::next(at) != samples_.end(); ++at) {
    const VariantPair &low = at->second, &high = std::next(at)->second;
    if (low.state * high.state < 0) brackets.emplace_back(low.x, high.x);
  }
  std::vector<Crossing> crossings;
  for (const auto& [low, high] : brackets) crossings.push_back(close(low, high));
  for (Crossing& c : crossings) c.interval = uncertainty(c.below, c.above, c.value);
  return crossings;
}

bool Crossings::is_closed(double low, double high) const {
  return range_.integer ? high - low <= 1 : high - low <= range_.closed * std::abs(high);
}

// The value at which the variant that fits at only one end fills its memory, extrapolated from the two nearest samples
// at which it fits; NaN if there are not two.
double Crossings::where_memory_is_full(const VariantPair& low, const VariantPair& high) const {
  for (const ResultPtr VariantPair::*side : {&VariantPair::of, &VariantPair::against}) {
    if (misfits(low.*side) == misfits(high.*side) || !(low.*side)) continue;
    std::vector<const VariantPair*> fitting;
    for (const auto& [x, s] : samples_) {
      if (s.*side && !misfits(s.*side)) fitting.push_back(&s);
    }
    if (fitting.size() < 2) return NAN;
    const bool from_below = misfits(high.*side);
    const VariantPair& near = from_below ? *fitting.back() : *fitting.front();
    const VariantPair& far = from_below ? *fitting[fitting.size() - 2] : *fitting[1];
    const double fill = memory_fill(*(near.*side)), slope = (fill - memory_fill(*(far.*side))) / (near.x - far.x);
    return near.x + (1 - fill) / slope;
  }
  return NAN;
}

// The next value in a bracket: the point at which the line through both ends crosses 1, or memory is full, or the
// middle.
double Crossings::proposal(const VariantPair& low, const VariantPair& high, bool middle) const {
  double x = range_.between(low.x, high.x, 0.5);
  if (!middle) {
    if (low.finite() && high.finite()) {
      const double share = low.log_times() / (low.log_times() - high.log_times());
      x = range_.between(low.x, high.x, std::clamp(share, 0.02, 0.98));
    } else if (const double full = where_memory_is_full(low, high); full >= low.x && full < high.x) {
      x = range_.integer ? std::floor(full) : full;
    }
  }
  return range_.integer ? std::clamp(x, low.x + 1, high.x - 1) : x;
}

Crossing Crossings::close(double low, double high) {
  // If costs jump, as they do at the tiles of kernels, lines do not help: after two that leave more than half of a
  // bracket it is halved.
  int poor = 0;
  for (int step = 0; !is_closed(low, high) && step < kMostSteps; ++step) {
    const VariantPair a = samples_.at(low), b = samples_.at(high);
    const double x = proposal(a, b, poor >= 2), width = high - low;
    add({x}, {&a, &b});
    const int state = samples_.at(x).state;
    if (state == 0) break;
    (state == a.state ? low : high) = x;
    if (high - low > 0.5 * width) ++poor;
  }
  const VariantPair &a = samples_.at(low), &b = samples_.at(high);
  Crossing crossing;
  crossing.below = a, crossing.above = b;
  crossing.value = high;
  if (!range_.integer && a.finite() && b.finite()) {
    crossing.value = range_.between(low, high, a.log_times() / (a.log_times() - b.log_times()));
  }
  return crossing;
}

// The range from the last settled sample below to the first one above, or to the next change of the better one, or to
// the end of the range.
Interval Crossings::uncertainty(const VariantPair& below, const VariantPair& above, double value) {
  Interval open{range_.from, range_.to};
  const auto first = samples_.find(below.x), second = samples_.find(above.x);
  for (auto at = first;; --at) {
    if (at->second.state != below.state) {
      open.low = std::next(at)->first;
      break;
    }
    if (at->second.settled) {
      open.low = at == first ? value : edge(at->first, std::next(at)->first);
      break;
    }
    if (at == samples_.begin()) break;
  }
  for (auto at = second; at != samples_.end(); ++at) {
    const bool changed = at->second.state != above.state;
    if (!changed && !at->second.settled) continue;
    open.high = at == second ? value : changed ? std::prev(at)->first : edge(at->first, std::prev(at)->first);
    break;
  }
  return open;
}

// The point between a settled value and its unsettled neighbour from which on the better one is uncertain: where a line
// between the near ends of the ratio's intervals reaches 1, or, if memory is what is uncertain, by bisection.
double Crossings::edge(double settled, double open) {
  const VariantPair &sure = samples_.at(settled), &unsure = samples_.at(open);
  const auto near = [&](const VariantPair& s) {
    return std::log(sure.state > 0 ? s.comparison.interval.low : s.comparison.interval.high);
  };
  const bool below = settled <= open;
  const double from = sure.finite() ? near(sure) : NAN, to = unsure.finite() ? near(unsure) : NAN;
  if (std::isfinite(from) && std::isfinite(to) && from * to <= 0 && from != to) {
    const double share = std::clamp(from / (from - to), 0.0, 1.0);
    return below ? range_.between(settled, open, share) : range_.between(open, settled, 1 - share);
  }
  constexpr double kClosedEdge = 0.02;
  const auto is_narrow = [&] {
    const double width = std::abs(open - settled);
    return range_.integer ? width <= 1 : width <= kClosedEdge * std::max(open, settled);
  };
  for (int step = 0; !is_narrow() && step < kMostSteps; ++step) {
    const double middle = range_.between(std::min(settled, open), std::max(settled, open), 0.5);
    if (middle == settled || middle == open) break;
    add({middle});
    (samples_.at(middle).settled ? settled : open) = middle;
  }
  return below && range_.integer ? settled + 1 : settled;
}

}  // namespace kvcast::plan
