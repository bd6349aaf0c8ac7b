// A sweep over the starts and finishes of all spans. At each instant the active span with the best claim is charged:
// claims are ordered by lane and kind, the model's own stream first, since an op there is what the step is made of.
//
// The critical path needs no dependencies: an op starts at the very instant at which the last thing that it waited for
// finished. Of several that finished then, the one with the best claim is taken, of these the longest.
#include "metrics/attribution.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.hpp"

namespace kvcast::metrics {
namespace {

using graph::Kind;
using graph::Lane;

// Lower is a better claim to an instant.
int claim(const Span& span) {
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
      return 8;  // a wait explains nothing by itself: what it waits for comes first
    default:
      return 5;  // selection on side streams
  }
}

// Who is charged of several: the best claim, of these the one that started first. What follows leaves nothing to the
// order in which spans came.
using Preference = std::tuple<int, Picoseconds, Kind, Bound, Origin, float>;
Preference preference(const Span& s) { return {claim(s), s.start, s.kind, s.bound, s.origin, s.uncertainty}; }

struct Edge {
  Picoseconds at;
  std::uint32_t span;
  bool opens;
};

// The starts and finishes of all spans in order of time, at one time in the order of the spans.
std::vector<Edge> edges_of(const std::vector<Span>& spans) {
  std::vector<Edge> edges;
  edges.reserve(2 * spans.size());
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    edges.push_back({spans[i].start, i, true});
    edges.push_back({spans[i].finish, i, false});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return std::pair(a.at, a.span) < std::pair(b.at, b.span); });
  return edges;
}

// The spans in order of their starts, or of their finishes.
std::vector<Span> in_order(const std::vector<Edge>& edges, const std::vector<Span>& spans, bool of_starts) {
  std::vector<Span> ordered;
  ordered.reserve(spans.size());
  for (const Edge& e : edges) {
    if (e.opens == of_starts) ordered.push_back(spans[e.span]);
  }
  return ordered;
}

// Overlapping spans of a kind count once.
double seconds_covered(const std::vector<Span>& by_start, Kind kind) {
  Picoseconds covered = 0, until = std::numeric_limits<Picoseconds>::min();
  for (const Span& s : by_start) {
    if (s.kind != kind || s.finish <= until) continue;
    covered += s.finish - std::max(s.start, until);
    until = s.finish;
  }
  return to_seconds(covered);
}

// Times that the engine rounded to whole picoseconds are equal within this.
constexpr Picoseconds kSameInstant = 2;

// The span on the critical path that ends at `at`; where none does (the window's end, or a
// start that nothing explains), the one with the best claim of those that run then. Null where none runs.
const Span* before(const std::vector<Span>& by_finish, Picoseconds at) {
  const Span* best = nullptr;
  const auto offer = [&best](const Span& s) {
    if (best == nullptr || preference(s) < preference(*best)) best = &s;
  };
  const auto first = std::lower_bound(by_finish.begin(), by_finish.end(), at - kSameInstant,
                                      [](const Span& s, Picoseconds t) { return s.finish < t; });
  for (auto s = first; s != by_finish.end() && s->finish <= at + kSameInstant; ++s) {
    if (s->start < at) offer(*s);
  }
  if (best != nullptr) return best;
  for (auto s = first; s != by_finish.end(); ++s) {
    if (s->start < at) offer(*s);
  }
  return best;
}

std::array<double, kBoundCount> critical_path(const std::vector<Span>& by_finish, Picoseconds begin, Picoseconds end) {
  std::array<double, kBoundCount> bound{};
  for (Picoseconds at = end; at > begin;) {
    const Span* const s = before(by_finish, at);
    if (s == nullptr) {  // nothing runs: on to what ended last
      const auto later = std::lower_bound(by_finish.begin(), by_finish.end(), at,
                                          [](const Span& a, Picoseconds t) { return a.finish < t; });
      if (later == by_finish.begin()) break;
      at = std::prev(later)->finish;
      continue;
    }
    bound[static_cast<std::size_t>(s->bound)] += to_seconds(at - s->start);
    at = s->start;
  }
  return bound;
}

}  // namespace

std::string_view bound_name(Bound bound) {
  static constexpr std::array<std::string_view, kBoundCount> kNames = {
      "hbm bandwidth", "tensor cores", "vector units",   "host link",  "copy issue and engine",
      "host dram",     "cpu cores",    "kernel latency", "host thread"};
  return kNames[static_cast<std::size_t>(bound)];
}

double Attribution::total() const { return std::accumulate(exposed.begin(), exposed.end(), idle); }

double Attribution::uncertain_total() const { return std::accumulate(uncertain.begin(), uncertain.end(), 0.0); }

namespace {

// Charges each instant of the window to the active span that is preferred.
void charge_instants(const std::vector<Edge>& edges, const std::vector<Span>& spans, Picoseconds begin, Picoseconds end,
                     Attribution& result) {
  std::set<std::pair<Preference, std::uint32_t>> active;
  Picoseconds now = begin;
  const auto charge = [&](Picoseconds until) {
    const double length = to_seconds(until - now);
    now = until;
    if (active.empty()) {
      result.idle += length;
      return;
    }
    const Span& s = spans[active.begin()->second];
    result.exposed[static_cast<std::size_t>(s.kind)] += length;
    result.origin[static_cast<std::size_t>(s.origin)] += length;
    result.uncertain[static_cast<std::size_t>(s.kind)] += length * static_cast<double>(s.uncertainty);
  };
  for (const Edge& e : edges) {
    if (e.at > now) charge(e.at);
    const std::pair entry{preference(spans[e.span]), e.span};
    if (e.opens) {
      active.insert(entry);
    } else {
      active.erase(entry);
    }
  }
  if (end > now) charge(end);
}

}  // namespace

Attribution attribute(std::vector<Span> spans, Picoseconds begin, Picoseconds end) {
  KVCAST_CHECK(begin <= end);
  for (Span& s : spans) s.start = std::max(s.start, begin), s.finish = std::min(s.finish, end);
  std::erase_if(spans, [](const Span& s) { return s.start >= s.finish || s.kind == Kind::kMarker; });
  const std::vector<Edge> edges = edges_of(spans);
  const std::vector<Span> by_start = in_order(edges, spans, true);

  Attribution result;
  result.bound = critical_path(in_order(edges, spans, false), begin, end);
  charge_instants(edges, spans, begin, end, result);
  for (std::size_t k = 0; k < result.hidden.size(); ++k) {
    // Less than a picosecond is the rounding of sums.
    const double hidden = seconds_covered(by_start, static_cast<Kind>(k)) - result.exposed[k];
    result.hidden[k] = hidden < 1e-12 ? 0 : hidden;
  }
  return result;
}

}  // namespace kvcast::metrics
