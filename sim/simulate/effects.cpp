#include "simulate/effects.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

namespace kvcast::simulate {
namespace {

// Schedule of a run, with the costs of its ops.
struct Timeline {
  RecordedBlocks blocks;
  Schedule schedule;
  std::vector<Schedule::UsedWork> used;
  explicit Timeline(const RecordedBlocks& recorded)
      : blocks(recorded), schedule(*recorded.recorder, *recorded.source), used(schedule.used_works(recorded.first)) {}
};

std::size_t last_of(const RecordedBlocks& blocks) { return blocks.first + blocks.count - 1; }

double mean_seconds(const RecordedBlocks& b) {
  return to_seconds(b.recorder->block_ends()[last_of(b)] - b.recorder->start_of(b.first)) /
         static_cast<double>(b.count);
}

// Returns, by source, the uncertainty in seconds of the weighted mean time of a block if its ops ran one after another.
std::map<std::string, double> uncertain_seconds(const std::vector<Timeline>& runs) {
  std::unordered_map<const std::string*, double> by_number;  // a profile repeats a source for each number
  for (const Timeline& run : runs) {
    const double weight = run.blocks.weight / static_cast<double>(run.blocks.count);
    for (const Schedule::UsedWork& work : run.used) {
      for (const hardware::Term& part : work.terms.parts()) {
        if (part.seconds.source == nullptr || part.seconds.uncertainty == 0) continue;
        by_number[part.seconds.source] += weight * work.ops * part.seconds.value * part.seconds.uncertainty;
      }
    }
  }
  std::map<std::string, double> by_source;
  for (const auto& [source, seconds] : by_number) by_source[*source] += seconds;
  return by_source;
}

Picoseconds rounded(double picoseconds) { return static_cast<Picoseconds>(picoseconds + 0.5); }

// Weighted time and attribution of blocks under one shift.
struct ShiftedTime {
  double seconds = 0;
  metrics::Attribution attribution;
};

void add_shifted(const Timeline& run, const Schedule::Times& times, std::size_t shift, bool attributed,
                 ShiftedTime& sum) {
  const RecordedBlocks& b = run.blocks;
  const double weight = b.weight / static_cast<double>(b.count);
  const double begin = b.first == 0                            ? 0.0
                       : b.first > b.recorder->detailed_from() ? run.schedule.end_of(b.first - 1, times)[shift]
                                                               : static_cast<double>(b.recorder->start_of(b.first));
  const double end = run.schedule.end_of(last_of(b), times)[shift];
  sum.seconds += weight * (end - begin) / kPicosPerSecond;
  if (!attributed) return;
  std::vector<metrics::BusySpan> spans;
  const std::vector<engine::Record>& records = b.recorder->records();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const double start = times.starts[i][shift], finish = times.finishes[i][shift];
    if (finish <= begin || start >= end || finish <= start) continue;
    const OpNote n = b.source->note(records[i].tag);
    spans.push_back({rounded(start), rounded(finish), n.kind, n.lane, n.bound, n.uncertainty, n.origin});
  }
  add_scaled(sum.attribution, metrics::attribute(std::move(spans), rounded(begin), rounded(end)), weight);
}

// Returns whether a shift affects the blocks unequally. Work left over from earlier blocks, such as a backlog of
// recalls, then builds up or drains under the shift, and the recorded blocks are not a steady state.
bool is_transient(const Timeline& run, const Schedule::Times& times, std::size_t shift) {
  constexpr double kSteady = 0.05;  // difference between the factors on the lengths of blocks
  const RecordedBlocks& b = run.blocks;
  const std::vector<Picoseconds>& ends = b.recorder->block_ends();
  if (!b.steady || b.first == 0) return false;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (std::size_t block = std::max(b.first, b.recorder->detailed_from() + 1); block <= last_of(b); ++block) {
    const double shifted = run.schedule.end_of(block, times)[shift] - run.schedule.end_of(block - 1, times)[shift];
    const double factor = shifted / static_cast<double>(ends[block] - ends[block - 1]);
    least = std::min(least, factor), most = std::max(most, factor);
  }
  return most - least > kSteady;
}

// Returns the shifts under which the work left over by blocks grows faster than as recorded. From some block on,
// possibly after the recorded ones, it delays the steps.
std::array<bool, kShifts> grows_backlog(const Timeline& run, const Schedule::Times& times) {
  constexpr double kSteady = 0.03;  // share of a block's length
  const RecordedBlocks& b = run.blocks;
  if (!b.steady || b.first == 0 || b.count < 2) return {};
  const auto& blocks = b.source->blocks();
  const std::size_t last = last_of(b);
  ByShift at_first{}, at_last{};  // finish of the last op of the first and of the last block
  const std::vector<engine::Record>& records = b.recorder->records();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const bool of_first = records[i].id >= blocks[b.first].first && records[i].id <= blocks[b.first].last;
    if (!of_first && records[i].id < blocks[last].first) continue;
    ByShift& finishes = of_first ? at_first : at_last;
    for (std::size_t s = 0; s < kShifts; ++s) finishes[s] = std::max(finishes[s], times.finishes[i][s]);
  }
  const double as_is = static_cast<double>(b.recorder->lag(last) - b.recorder->lag(b.first));
  std::array<bool, kShifts> grows{};
  for (std::size_t s = 0; s < kShifts; ++s) {
    const double growth =
        (at_last[s] - run.schedule.end_of(last, times)[s]) - (at_first[s] - run.schedule.end_of(b.first, times)[s]);
    grows[s] = growth - as_is > kSteady * mean_seconds(b) * kPicosPerSecond;
  }
  return grows;
}

// Same as add_shifted(), by running the engine: for shifts under which the recorded schedule does not apply.
void add_rerun(const RecordedBlocks& as_is, const hardware::Shift& shift, bool attributed, ShiftedTime& sum) {
  const hardware::CostModel model = as_is.source->costs().model().shifted(shift);
  CostTable costs(as_is.source->costs().works(), model);
  TimedSource source(as_is.source->stream(), costs, {}, last_of(as_is) + 1, as_is.source->cancel());
  Recorder recorder(source, attributed ? as_is.recorder->detailed_from() : last_of(as_is) + 1);
  engine::run(*as_is.system, source, &recorder);
  RecordedBlocks again = as_is;
  again.source = &source, again.recorder = &recorder;
  sum.seconds += as_is.weight * mean_seconds(again);
  if (attributed) add_scaled(sum.attribution, attribute_blocks(again), as_is.weight);
}

}  // namespace

std::vector<TimeEffect> time_effects(std::span<const RecordedBlocks> blocks, double least_share, bool attributed) {
  std::vector<Timeline> runs;
  double as_is = 0;
  for (const RecordedBlocks& b : blocks) {
    runs.emplace_back(b);
    as_is += b.weight * mean_seconds(b);
  }
  std::vector<TimeEffect> effects;
  for (const auto& [source, seconds] : uncertain_seconds(runs)) {
    if (seconds >= least_share * as_is) effects.emplace_back().source = source;
  }
  constexpr std::size_t kSources = kShifts / 2;
  for (std::size_t first = 0; first < effects.size(); first += kSources) {
    const std::size_t count = std::min(kSources, effects.size() - first);
    std::vector<hardware::Shift> shifts;
    for (std::size_t i = 0; i < count; ++i) {
      for (const double sign : {1.0, -1.0}) shifts.push_back({effects[first + i].source, sign});
    }
    std::vector<ShiftedTime> sums(shifts.size());
    for (const Timeline& run : runs) {
      run.blocks.source->cancel().check();
      const Schedule::Times times = run.schedule.shifted(run.used, shifts);
      const std::array<bool, kShifts> backlog = grows_backlog(run, times);
      for (std::size_t s = 0; s < shifts.size(); ++s) {
        effects[first + s / 2].unsettled = effects[first + s / 2].unsettled || backlog[s];
        if (times.reordered[s] || backlog[s] || is_transient(run, times, s)) {
          add_rerun(run.blocks, shifts[s], attributed, sums[s]);
        } else {
          add_shifted(run, times, s, attributed, sums[s]);
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      TimeEffect& effect = effects[first + i];
      const ShiftedTime &longer = sums[2 * i], &shorter = sums[2 * i + 1];
      effect.longer = longer.seconds / as_is, effect.shorter = shorter.seconds / as_is;
      if (attributed) effect.longer_time = longer.attribution, effect.shorter_time = shorter.attribution;
    }
  }
  return effects;
}

std::vector<std::string> keys_of(const config::Hardware& hardware, const config::Framework& framework,
                                 const std::string& source) {
  std::vector<std::string> keys;
  for (const config::ConstKnob& knob : config::knobs(hardware)) {
    if ((knob.value != nullptr ? knob.value->source : knob.curve->source) == source) keys.push_back(knob.key);
  }
  for (const config::FrameworkNumber& n : config::framework_numbers()) {
    if ((framework.*n.member).source == source) keys.push_back(std::string("framework.") + n.key);
  }
  return keys;
}

metrics::Attribution attribute_blocks(const RecordedBlocks& b) {
  const Picoseconds begin = b.recorder->start_of(b.first), end = b.recorder->block_ends()[last_of(b)];
  return scaled(metrics::attribute(b.recorder->spans(begin, end), begin, end), 1.0 / static_cast<double>(b.count));
}

void add_scaled(metrics::Attribution& sum, const metrics::Attribution& part, double weight) {
  const auto add = [weight](auto& into, const auto& from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] += weight * from[i];
  };
  add(sum.exposed, part.exposed);
  add(sum.hidden, part.hidden);
  add(sum.bound, part.bound);
  for (std::size_t k = 0; k < sum.path.size(); ++k) add(sum.path[k], part.path[k]);
  add(sum.origin, part.origin);
  sum.idle += weight * part.idle;
  add(sum.uncertain, part.uncertain);
}

metrics::Attribution scaled(const metrics::Attribution& part, double factor) {
  metrics::Attribution out;
  add_scaled(out, part, factor);
  return out;
}

}  // namespace kvcast::simulate
