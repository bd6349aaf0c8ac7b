// A sweep over the starts and finishes of all spans. Each instant is charged to the active span with the best claim:
// claims are ordered by lane and kind, the model's own stream first, because its ops make up the step.
//
// The critical path needs no dependencies: an op starts at the very instant at which the last thing that it waited for
// finished. Of several that finished then, the one with the best claim is taken, of these the longest.
#include "metrics/attribution.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace kvcast::metrics {
namespace {

using graph::Kind;
using graph::Lane;

// Priority of a span for being charged an instant; lower is better.
int claim(const BusySpan& span) {
  if (span.kind == Kind::kMarker) return 9;
  if (span.lane == Lane::kCompute) return 0;
  switch (span.kind) {
    case Kind::kCopyIn:
      return 1;
    case Kind::kCpuWork:
      return 2;
    case Kind::kConvert:
      return 3;
    case Kind::kCopyOut:
      return span.lane == Lane::kBackup ? 7 : 4;
    case Kind::kLaunch:
      return 6;
    case Kind::kSync:
      return 8;  // a wait explains nothing by itself: the op that it waits for comes first
    default:
      return 5;  // selection on side streams
  }
}

// Order of preference for being charged: the best claim, then the earliest start. The remaining criteria make the
// result independent of the order of the spans.
bool preferred(const BusySpan& a, const BusySpan& b) {
  const int claim_a = claim(a), claim_b = claim(b);
  if (claim_a != claim_b) return claim_a < claim_b;
  if (a.start != b.start) return a.start < b.start;
  return std::tie(a.kind, a.bound, a.origin, a.uncertainty) < std::tie(b.kind, b.bound, b.origin, b.uncertainty);
}

// The spans' indices in order of their starts, and of their finishes; ties in the order of the spans.
using Order = std::vector<std::uint32_t>;
template <class TimeOf>
Order in_order(const std::vector<BusySpan>& spans, TimeOf time_of) {
  std::vector<std::pair<Picoseconds, std::uint32_t>> keys;
  keys.reserve(spans.size());
  for (const BusySpan& s : spans) keys.emplace_back(time_of(s), static_cast<std::uint32_t>(keys.size()));
  if (!std::is_sorted(keys.begin(), keys.end())) std::sort(keys.begin(), keys.end());
  Order order;
  order.reserve(keys.size());
  for (const auto& [time, span] : keys) order.push_back(span);
  return order;
}

// Seconds during which a span of each kind runs; overlapping spans of a kind count once.
std::array<double, graph::kKindCount> seconds_covered(const std::vector<BusySpan>& spans, const Order& by_start) {
  std::array<Picoseconds, graph::kKindCount> covered{}, until{};
  until.fill(std::numeric_limits<Picoseconds>::min());
  for (const std::uint32_t i : by_start) {
    const BusySpan& s = spans[i];
    const auto k = static_cast<std::size_t>(s.kind);
    if (s.finish <= until[k]) continue;
    covered[k] += s.finish - std::max(s.start, until[k]);
    until[k] = s.finish;
  }
  std::array<double, graph::kKindCount> seconds{};
  for (std::size_t k = 0; k < seconds.size(); ++k) seconds[k] = to_seconds(covered[k]);
  return seconds;
}

// Times that the engine rounded to whole picoseconds are equal within this tolerance.
constexpr Picoseconds kSameInstant = 2;

// The span on the critical path that ends at `at`; if none does (the window's end, or a start that nothing explains),
// the one with the best claim of those that run then. Null if none runs.
const BusySpan* before(const std::vector<BusySpan>& spans, const Order& by_finish, Picoseconds at) {
  const BusySpan* best = nullptr;
  const auto offer = [&best](const BusySpan& s) {
    if (best == nullptr || preferred(s, *best)) best = &s;
  };
  const auto first = std::lower_bound(by_finish.begin(), by_finish.end(), at - kSameInstant,
                                      [&spans](std::uint32_t i, Picoseconds t) { return spans[i].finish < t; });
  auto s = first;
  for (; s != by_finish.end() && spans[*s].finish <= at + kSameInstant; ++s) {
    if (spans[*s].start < at) offer(spans[*s]);
  }
  if (best != nullptr) return best;
  for (; s != by_finish.end(); ++s) {
    if (spans[*s].start < at) offer(spans[*s]);
  }
  return best;
}

KindsByBound critical_path(const std::vector<BusySpan>& spans, const Order& by_finish, Picoseconds begin,
                           Picoseconds end) {
  KindsByBound path{};
  for (Picoseconds at = end; at > begin;) {
    const BusySpan* const s = before(spans, by_finish, at);
    if (s == nullptr) {  // nothing runs: continue with the span that ended last
      const auto later = std::lower_bound(by_finish.begin(), by_finish.end(), at,
                                          [&spans](std::uint32_t i, Picoseconds t) { return spans[i].finish < t; });
      if (later == by_finish.begin()) break;
      at = spans[*std::prev(later)].finish;
      continue;
    }
    path[static_cast<std::size_t>(s->kind)][static_cast<std::size_t>(s->bound)] += to_seconds(at - s->start);
    at = s->start;
  }
  return path;
}

}  // namespace

std::string_view bound_name(Bound bound) {
  static constexpr std::array<std::string_view, kBoundCount> kNames = {
      "HBM bandwidth", "tensor cores", "vector units",   "host link",  "copy issue and engine",
      "host DRAM",     "CPU cores",    "kernel latency", "host thread"};
  return kNames[static_cast<std::size_t>(bound)];
}

std::array<double, kBoundCount> by_bound(const KindsByBound& path) {
  std::array<double, kBoundCount> sums{};
  for (const auto& of_kind : path) {
    for (std::size_t b = 0; b < sums.size(); ++b) sums[b] += of_kind[b];
  }
  return sums;
}

std::array<double, graph::kKindCount> by_kind(const KindsByBound& path) {
  std::array<double, graph::kKindCount> sums{};
  for (std::size_t k = 0; k < sums.size(); ++k) sums[k] = std::accumulate(path[k].begin(), path[k].end(), 0.0);
  return sums;
}

double Attribution::total() const { return std::accumulate(exposed.begin(), exposed.end(), idle); }

double Attribution::uncertain_total() const { return std::accumulate(uncertain.begin(), uncertain.end(), 0.0); }

namespace {

// Charges each instant of the window to the preferred active span. Few spans run at once, so that a linear scan for it,
// and for the one that ends next, is fastest.
void charge_instants(const std::vector<BusySpan>& spans, const Order& by_start, Picoseconds begin, Picoseconds end,
                     Attribution& result) {
  std::vector<const BusySpan*> active;
  const BusySpan* best = nullptr;
  Picoseconds now = begin, next_finish = end;
  const auto charge = [&](Picoseconds until) {
    const double length = to_seconds(until - now);
    now = until;
    if (best == nullptr) {
      result.idle += length;
      return;
    }
    result.exposed[static_cast<std::size_t>(best->kind)] += length;
    result.origin[static_cast<std::size_t>(best->origin)] += length;
    result.uncertain[static_cast<std::size_t>(best->kind)] += length * static_cast<double>(best->uncertainty);
  };
  const auto drop_finished = [&] {
    std::erase_if(active, [now](const BusySpan* s) { return s->finish <= now; });
    best = nullptr, next_finish = end;
    for (const BusySpan* s : active) {
      if (best == nullptr || preferred(*s, *best)) best = s;
      next_finish = std::min(next_finish, s->finish);
    }
  };
  const auto pass_until = [&](Picoseconds until) {
    while (next_finish < until) {
      if (next_finish > now) charge(next_finish);
      drop_finished();
    }
    if (until > now) charge(until);
  };
  for (const std::uint32_t i : by_start) {
    const BusySpan& s = spans[i];
    pass_until(s.start);
    active.push_back(&s);
    if (next_finish <= now) drop_finished();
    if (best == nullptr || preferred(s, *best)) best = &s;
    next_finish = std::min(next_finish, s.finish);
  }
  pass_until(end);
}

}  // namespace

Attribution attribute(std::vector<BusySpan> spans, Picoseconds begin, Picoseconds end) {
  KVCAST_CHECK(begin <= end);
  for (BusySpan& s : spans) s.start = std::max(s.start, begin), s.finish = std::min(s.finish, end);
  std::erase_if(spans, [](const BusySpan& s) { return s.start >= s.finish || s.kind == Kind::kMarker; });
  const Order by_start = in_order(spans, [](const BusySpan& s) { return s.start; });
  const Order by_finish = in_order(spans, [](const BusySpan& s) { return s.finish; });

  Attribution result;
  result.path = critical_path(spans, by_finish, begin, end);
  result.bound = by_bound(result.path);
  charge_instants(spans, by_start, begin, end, result);
  const std::array<double, graph::kKindCount> covered = seconds_covered(spans, by_start);
  for (std::size_t k = 0; k < result.hidden.size(); ++k) {
    // Less than a picosecond is the rounding of sums.
    const double hidden = covered[k] - result.exposed[k];
    result.hidden[k] = hidden < 1e-12 ? 0 : hidden;
  }
  return result;
}

}  // namespace kvcast::metrics
