#include "plan/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/units.hpp"

namespace kvcast::plan {
namespace {

using result::Effect;
using result::Metric;
using result::Result;

const Effect* effect_of(const Result& r, const std::string& source) {
  const auto found = std::ranges::find_if(r.experiment.effects, [&](const Effect& e) { return e.source == source; });
  return found == r.experiment.effects.end() ? nullptr : &*found;
}

std::array<double, 2> factors(const Result& r, const Metric& metric, const std::string& source) {
  const Effect* const effect = effect_of(r, source);
  if (effect == nullptr) return {1, 1};
  return {result::time_factor(r, metric, effect->longer), result::time_factor(r, metric, effect->shorter)};
}

// The interval of a number that costs do not move, such as a score. Its ends are at least a hundredth of the number,
// because ratios mean nothing near 0.
std::optional<Interval> own_range(const Result& r, const Metric& metric, double value) {
  auto range = result::interval(r, metric);
  if (!range || result::prefill_share(r, metric)) return {};
  const double least = 0.01 * value;
  range->low = std::max(range->low, least), range->high = std::max(range->high, least);
  return range;
}

// A time on one of the traces over the mean on all of them, of which this share is prefill.
double relative_time(const Result& r, const result::TraceTimes& on_trace, double share) {
  double time = 0;
  if (share > 0) time += share * on_trace.prefill_s / r.experiment.ttft_s;
  if (share < 1) time += (1 - share) * on_trace.step_s / r.experiment.tpot_mean_s;
  return time;
}

// The sampled layers and steps are those of both phases.
double spread_of(const result::TraceTimes& times, double share) {
  return share * times.prefill_spread + (1 - share) * times.step_spread;
}

// Half-width of ln(ratio) on another text of these kinds, for two runs on the same texts. Effects of a text on both
// runs cancel. The sampling errors of the layers and steps that each trace contains are independent.
std::optional<double> spread_by_texts(const Result& a, const Result& b, const Metric& metric) {
  const auto &of_a = a.experiment.by_trace, &of_b = b.experiment.by_trace;
  if (of_a.size() < 2 || of_a.size() != of_b.size() || a.subject.trace != b.subject.trace) return {};
  const auto share_a = result::prefill_share(a, metric), share_b = result::prefill_share(b, metric);
  if (!share_a || !share_b) return {};
  std::vector<double> ratios;
  double within_a = 0, within_b = 0;
  const auto count = static_cast<double>(of_a.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    ratios.push_back(std::log(relative_time(a, of_a[i], *share_a) / relative_time(b, of_b[i], *share_b)));
    within_a += spread_of(of_a[i], *share_a) / count, within_b += spread_of(of_b[i], *share_b) / count;
  }
  return std::hypot(half_width_of_next(ratios), within_a, within_b);
}

}  // namespace

Comparison compare(const Result& a, const Result& b, const Metric& metric) {
  KVCAST_CHECK(metric.better != result::Better::kNeither);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // Results that do not fit in memory have no value.
  const auto of = [&](const Result& r) { return r.has_times() ? result::value(r, metric) : std::nullopt; };
  const auto of_a = of(a), of_b = of(b);
  Comparison out;
  if (!of_a && !of_b) return out;
  if (!of_a || !of_b || *of_a == 0 || *of_b == 0) {
    const bool a_better = of_b ? of_a && (*of_a > 0) == (metric.better == result::Better::kHigher) : true;
    out.times = of_a && of_b && *of_a == *of_b ? 1 : a_better ? kNever : 0;
    out.interval = {out.times, out.times};
    return out;
  }
  const bool higher = metric.better == result::Better::kHigher;
  const auto oriented = [higher](double first, double second) { return higher ? first / second : second / first; };
  out.times = oriented(*of_a, *of_b);
  FactorSpread spread;
  std::set<std::string> sources;
  for (const Result* r : {&a, &b}) {
    for (const Effect& e : r->experiment.effects) sources.insert(e.source);
  }
  const std::optional<double> texts = spread_by_texts(a, b, metric);
  if (texts) {
    spread.add(std::array{std::exp(*texts), std::exp(-*texts)});
    sources.erase(result::kTraceSample);
  }
  for (const std::string& source : sources) {
    const std::array<double, 2> fa = factors(a, metric, source), fb = factors(b, metric, source);
    if (source == result::kTraceSample) {
      spread.add(std::array{oriented(fa[0], 1), oriented(fa[1], 1)});
      spread.add(std::array{oriented(1, fb[0]), oriented(1, fb[1])});
    } else {
      spread.add(std::array{oriented(fa[0], fb[0]), oriented(fa[1], fb[1])});
    }
  }
  if (const auto range_a = own_range(a, metric, *of_a))
    spread.add(std::array{oriented(range_a->low, *of_a), oriented(range_a->high, *of_a)});
  if (const auto range_b = own_range(b, metric, *of_b))
    spread.add(std::array{oriented(*of_b, range_b->low), oriented(*of_b, range_b->high)});
  out.interval = spread.interval(out.times);
  return out;
}

bool is_tie(const Comparison& c) {
  constexpr double kTie = 1.01;
  return !c.beyond_uncertainty() || (c.times < kTie && c.times > 1 / kTie);
}

std::string times_text(const Comparison& c) {
  if (c.interval.low == c.interval.high) return format_digits(c.times, 3) + " times";
  return fmt::format("{} ({} to {}) times", format_digits(c.times, 3), format_digits(c.interval.low, 3),
                     format_digits(c.interval.high, 3));
}

}  // namespace kvcast::plan
