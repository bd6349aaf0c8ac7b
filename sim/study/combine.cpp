#include "study/combine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/interval.hpp"
#include "result/metric.hpp"
#include "simulate/effects.hpp"
#include "study/accuracy.hpp"

namespace kvcast::study {
namespace {

using metrics::Attribution;
using result::Accuracy;
using result::Effect;
using result::Experiment;
using result::Result;
using result::ShiftedTimes;
using result::TaskScore;
using Results = std::vector<Result>;

constexpr double kRounding = 1e-9;  // of a sum of equal numbers

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

template <class ValueOf>
std::vector<double> of_each(const Results& results, ValueOf value_of) {
  std::vector<double> values;
  for (const Result& r : results) values.push_back(value_of(r));
  return values;
}

// ---- numbers of the table of metrics

// The combined result has an optional proxy if any of the results has it.
void open_optional(const Results& results, Accuracy& accuracy) {
  for (const auto proxy : {&Accuracy::prompt_density, &Accuracy::prompt_recall_mass_mean}) {
    const bool any = std::ranges::any_of(results, [&](const Result& r) { return (r.accuracy.*proxy).has_value(); });
    if (any) (accuracy.*proxy).emplace();
  }
}

// The interval of a replayed number on another text of these kinds. Shares are at most 1, and none is negative.
std::optional<Interval> on_another_text(const result::Metric& metric, const std::vector<double>& values) {
  if (metric.basis != result::Basis::kReplay && metric.basis != result::Basis::kTraffic) return {};
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (values.size() < 2 || *most - *least <= kRounding * *most) return {};
  if (metric.unit == result::Unit::kShare) {
    const double middle = mean_of(values), half_width = half_width_of_next(values);
    const double limit = metric.better == result::Better::kLower ? std::max(1.0, *most) : 1.0;
    return Interval{std::max(0.0, middle - half_width), std::min(limit, middle + half_width)};
  }
  if (*least <= 0) return Interval{0, mean_of(values) + half_width_of_next(values)};
  std::vector<double> logarithms;
  for (const double value : values) logarithms.push_back(std::log(value));
  const double middle = mean_of(logarithms), half_width = half_width_of_next(logarithms);
  return Interval{std::exp(middle - half_width), std::exp(middle + half_width)};
}

void combine_numbers(const Results& results, Result& combined) {
  open_optional(results, combined.accuracy);
  combined.by_text.clear();
  for (const result::Metric& metric : result::all_metrics()) {
    double* const field = metric.field == nullptr ? nullptr : metric.field(combined, metric.which);
    if (field == nullptr) continue;
    std::vector<double> values;
    for (const Result& r : results) {
      if (const auto number = result::value(r, metric)) values.push_back(*number);
    }
    if (values.empty()) continue;
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    *field = metric.basis == result::Basis::kProgram ? sum : mean_of(values);
    if (const auto interval = on_another_text(metric, values)) combined.by_text.push_back({metric.path, *interval});
  }
  if (combined.has_times()) {
    Experiment& e = combined.experiment;
    e.tokens_per_s = static_cast<double>(combined.subject.batch) / e.tpot_mean_s;
  }
}

// ---- parts of times

Attribution scaled(const Attribution& time, double factor) {
  Attribution out;
  simulate::add_scaled(out, time, factor);
  return out;
}

template <class PartsOf>
Attribution mean_parts(const Results& results, PartsOf parts_of) {
  Attribution mean;
  for (const Result& r : results) simulate::add_scaled(mean, parts_of(r), 1.0 / static_cast<double>(results.size()));
  return mean;
}

// ---- memory

void combine_pools(const Results& results, Experiment& combined) {
  for (const auto pool : {&Experiment::hbm, &Experiment::dram, &Experiment::decode_hbm}) {
    const auto most = std::ranges::max_element(results, [&](const Result& a, const Result& b) {
      return (a.experiment.*pool).peak < (b.experiment.*pool).peak;
    });
    combined.*pool = most->experiment.*pool;
  }
}

// ---- effects

// A time of results, its attribution and the factors on it.
struct Phase {
  double Experiment::*seconds;
  Attribution Experiment::*parts;
  double ShiftedTimes::*factor;
  std::optional<Attribution> ShiftedTimes::*shifted_parts;
};
constexpr Phase kPhases[] = {
    {&Experiment::tpot_mean_s, &Experiment::step, &ShiftedTimes::step, &ShiftedTimes::step_parts},
    {&Experiment::ttft_s, &Experiment::prefill, &ShiftedTimes::prefill, &ShiftedTimes::prefill_parts},
};

const Effect* find_effect(const Result& r, const std::string& source) {
  const auto& all = r.experiment.effects;
  const auto found = std::ranges::find_if(all, [&](const Effect& e) { return e.source == source; });
  return found == all.end() ? nullptr : &*found;
}

// A trace on which the source's effect is too small to be listed keeps its time and its parts.
ShiftedTimes mean_shifted(const Results& results, const std::string& source, ShiftedTimes Effect::*side) {
  ShiftedTimes mean;
  for (const Phase& phase : kPhases) {
    const auto shifted_of = [&](const Result& r) -> const ShiftedTimes* {
      const Effect* const effect = find_effect(r, source);
      return effect == nullptr ? nullptr : &(effect->*side);
    };
    double seconds = 0, shifted = 0;
    bool has_parts = false;
    for (const Result& r : results) {
      const ShiftedTimes* const times = shifted_of(r);
      const double own = r.experiment.*phase.seconds;
      seconds += own, shifted += own * (times == nullptr ? 1 : times->*phase.factor);
      has_parts = has_parts || (times != nullptr && times->*phase.shifted_parts);
    }
    if (seconds > 0) mean.*phase.factor = shifted / seconds;
    if (!has_parts) continue;
    mean.*phase.shifted_parts = mean_parts(results, [&](const Result& r) -> const Attribution& {
      const ShiftedTimes* const times = shifted_of(r);
      const bool own = times == nullptr || !(times->*phase.shifted_parts);
      return own ? r.experiment.*phase.parts : *(times->*phase.shifted_parts);
    });
  }
  return mean;
}

double within_trace(const Result& r, double ShiftedTimes::*factor) {
  const Effect* const own = find_effect(r, result::kTraceSample);
  return own == nullptr ? 0 : std::log(own->longer.*factor);
}

// Widens the interval to the time on another text. Times are positive, and a text multiplies them: their logarithms are
// the draws. The spread between traces includes the contribution of their layers and steps, but the layers are the same
// ones of the model in each trace, and their difference from the other layers appears in none of the spreads. So the
// half-width within a trace, averaged over them and not divided by their number, is added as a square.
//
// The interval is around the mean of the logarithms, while the stated time is the mean of the times, which is longer
// by the factor exp(above): the factors on the stated time are smaller by it.
void widen_by_traces(const Results& results, const Phase& phase, const Experiment& combined, Effect& effect) {
  const std::vector<double> seconds = of_each(results, [&](const Result& r) { return r.experiment.*phase.seconds; });
  if (*std::ranges::min_element(seconds) <= 0) return;
  const std::vector<double> logarithms =
      of_each(results, [&](const Result& r) { return std::log(r.experiment.*phase.seconds); });
  const double within = mean_of(of_each(results, [&](const Result& r) { return within_trace(r, phase.factor); }));
  const double half_width = std::hypot(half_width_of_next(logarithms), within);
  const double above = std::log(combined.*phase.seconds) - mean_of(logarithms);
  effect.longer.*phase.factor = std::exp(half_width - above);
  effect.shorter.*phase.factor = std::exp(-half_width - above);
}

// The parts of a longer time are those of the slowest trace, scaled to that time, of a shorter time those of the
// fastest: the breakdown differs between texts as much as the time does.
void add_parts_by_traces(const Results& results, const Phase& phase, const Experiment& combined, Effect& effect) {
  const auto [fastest, slowest] = std::minmax_element(
      results.begin(), results.end(),
      [&](const auto& a, const auto& b) { return a.experiment.*phase.seconds < b.experiment.*phase.seconds; });
  const auto parts_at = [&](const Result& r, double factor) {
    return scaled(r.experiment.*phase.parts, factor * (combined.*phase.seconds) / (r.experiment.*phase.seconds));
  };
  effect.longer.*phase.shifted_parts = parts_at(*slowest, effect.longer.*phase.factor);
  effect.shorter.*phase.shifted_parts = parts_at(*fastest, effect.shorter.*phase.factor);
}

std::vector<result::TraceTimes> times_by_trace(const Results& results) {
  std::vector<result::TraceTimes> times;
  for (const Result& r : results) {
    times.push_back({r.experiment.tpot_mean_s, r.experiment.ttft_s, within_trace(r, &ShiftedTimes::step),
                     within_trace(r, &ShiftedTimes::prefill)});
  }
  return times;
}

void combine_effects(const Results& results, bool detailed, Experiment& combined) {
  std::set<std::string> sources;
  for (const Result& r : results) {
    for (const Effect& e : r.experiment.effects) sources.insert(e.source);
  }
  sources.erase(result::kTraceSample);
  combined.effects.clear();
  for (const std::string& source : sources) {
    const auto has = std::ranges::find_if(results, [&](const Result& r) { return find_effect(r, source) != nullptr; });
    combined.effects.push_back({source, find_effect(*has, source)->keys, mean_shifted(results, source, &Effect::longer),
                                mean_shifted(results, source, &Effect::shorter)});
  }
  Effect by_traces{result::kTraceSample, {result::kTraceSample}, {}, {}};
  bool moves = false;
  for (const Phase& phase : kPhases) {
    widen_by_traces(results, phase, combined, by_traces);
    const bool moved = by_traces.longer.*phase.factor - by_traces.shorter.*phase.factor > kRounding;
    if (!moved) by_traces.longer.*phase.factor = by_traces.shorter.*phase.factor = 1;
    if (moved && detailed) add_parts_by_traces(results, phase, combined, by_traces);
    moves = moves || moved;
  }
  if (moves) combined.effects.push_back(std::move(by_traces));
}

// ---- accuracy

// A score is a mean over many texts, so the spread between the traces estimates how far the mean of these few is from
// the mean of all texts of these kinds. The traces' own intervals are those of one score model, whose errors do not
// average out: the mean of their half-widths is added as a square.
void combine_intervals(const std::vector<const TaskScore*>& tasks, TaskScore& combined) {
  std::vector<double> shares;
  double below = 0, above = 0;
  for (const TaskScore* task : tasks) {
    shares.push_back(task->share_of_full);
    below += task->share_of_full - task->interval.low, above += task->interval.high - task->share_of_full;
  }
  const auto count = static_cast<double>(tasks.size());
  const double spread = half_width_of_mean(shares);
  combined.share_of_full = mean_of(shares);
  combined.interval.low = std::max(0.0, combined.share_of_full - std::hypot(below / count, spread));
  combined.interval.high = std::min(1.0, combined.share_of_full + std::hypot(above / count, spread));
}

std::string task_names(const std::vector<const TaskScore*>& tasks) {
  std::string names;
  std::set<std::string> seen;
  for (const TaskScore* task : tasks) {
    if (seen.insert(task->task).second) names += (names.empty() ? "" : ", ") + task->task;
  }
  return names;
}

// Traces without a task do not contribute to the score.
std::optional<TaskScore> combine_tasks(const Results& results) {
  std::vector<const TaskScore*> tasks;
  for (const Result& r : results) {
    if (r.accuracy.task) tasks.push_back(&*r.accuracy.task);
  }
  if (tasks.empty()) return {};
  if (tasks.size() == 1) return *tasks.front();
  const auto mean = [&](double TaskScore::*member) {
    return std::accumulate(tasks.begin(), tasks.end(), 0.0,
                           [&](double sum, const TaskScore* t) { return sum + t->*member; }) /
           static_cast<double>(tasks.size());
  };
  TaskScore combined = *tasks.front();
  combined.task = task_names(tasks);
  combined.steps = 0;
  for (const TaskScore* task : tasks) {
    combined.known = combined.known && task->known;
    combined.steps += task->steps;
    combined.recall_min = std::min(combined.recall_min, task->recall_min);
  }
  combined.recall_mean = mean(&TaskScore::recall_mean), combined.other_recall = mean(&TaskScore::other_recall);
  combine_intervals(tasks, combined);
  return combined;
}

}  // namespace

Result combine(std::vector<Result> results, simulate::Effects effects) {
  KVCAST_CHECK(!results.empty());
  if (results.size() == 1) return std::move(results.front());
  const auto oom = std::ranges::find_if(results, [](const Result& r) { return r.status == result::Status::kOom; });
  Result combined = oom == results.end() ? results.front() : *oom;
  combine_numbers(results, combined);
  combined.accuracy.task = combine_tasks(results);
  for (const Result& r : results) {
    if (combined.accuracy.task_refused.empty()) combined.accuracy.task_refused = r.accuracy.task_refused;
  }
  if (combined.accuracy.task) combined.accuracy.task_refused.clear();
  std::vector<MapShare> maps;
  for (const Result& r : results) maps.push_back({&r.accuracy.layers});
  combined.accuracy.layers = mean_maps(maps);
  Experiment& e = combined.experiment;
  e.engine_ops = e.engine_events = 0, e.unsettled = false, combined.wall_s = 0;
  for (const Result& r : results) {
    combined.accuracy.origin = worse(combined.accuracy.origin, r.accuracy.origin);
    e.engine_ops += r.experiment.engine_ops, e.engine_events += r.experiment.engine_events;
    e.unsettled = e.unsettled || r.experiment.unsettled;
    combined.wall_s += r.wall_s;
  }
  combine_pools(results, e);
  if (!combined.has_times()) return combined;
  e.step = mean_parts(results, [](const Result& r) -> const Attribution& { return r.experiment.step; });
  e.prefill = mean_parts(results, [](const Result& r) -> const Attribution& { return r.experiment.prefill; });
  e.by_trace = times_by_trace(results);
  if (effects != simulate::Effects::kNone) combine_effects(results, effects == simulate::Effects::kDetailed, e);
  return combined;
}

}  // namespace kvcast::study
