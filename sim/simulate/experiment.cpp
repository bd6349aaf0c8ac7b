// Prefill is simulated once, in full. Decode is simulated in windows of steps at a few contexts (lowered.hpp).
// Simpson's rule over the contexts gives the mean over the decode length: time per token is close to linear in context.
#include "simulate/experiment.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

#include "base/error.hpp"
#include "base/interval.hpp"
#include "base/quantile.hpp"
#include "config/left_out.hpp"
#include "engine/timeline.hpp"
#include "hardware/sustained.hpp"
#include "result/metric.hpp"
#include "simulate/effects.hpp"
#include "simulate/spans.hpp"
#include "simulate/window.hpp"

namespace kvcast::simulate {
namespace {

using Clock = std::chrono::steady_clock;
using result::OwnedBytes;

// A window is unsettled if the work left over by its steps grows by more than this share of a step.
constexpr double kBacklog = 0.03;
// A group of prompts is repeated if it takes as long as the one before it, within this share.
constexpr double kSameGroup = 1e-3;
// Smallest effect on times that is evaluated, as a share of a time. Far smaller ones than an interval's width count:
// two runs are compared by the difference of their effects, which decides whether a difference of 1 % is certain.
constexpr double kLeastEffect = 0.002;

std::vector<OwnedBytes> name_owners(const std::vector<engine::OwnerBytes>& owners,
                                    const std::vector<std::string>& names) {
  std::vector<OwnedBytes> out;
  for (const engine::OwnerBytes& o : owners) out.push_back({names[o.owner], o.bytes});
  return out;
}

// A machine's costs of the work, and the resources that the work shares there.
struct Machine {
  hardware::CostModel model;
  CostTable costs;
  engine::System system;

  Machine(const Lowered& lowered, const config::Hardware& hardware, const ExperimentOptions& options)
      : model(hardware, lowered.framework, options.shift, lowered.gpus),
        costs(lowered.works, model),
        system(make_system(model)) {}
  Machine(const Machine&) = delete;  // costs refer to the model
};

class Simulation {
 public:
  Simulation(const Lowered& lowered, const config::Hardware& hardware, const ExperimentOptions& options)
      : lowered_(lowered), hardware_(hardware), options_(options), usual_(lowered, hardware, options) {
    const bool more_or_fewer = options.shift.source == result::kTemporaries;
    const double factor = more_or_fewer ? 1 + options.shift.sign * result::kTemporarySpread : 1;
    if (factor == 1) return;
    for (std::size_t i = 0; i < graph::owner_names().size(); ++i)
      scales_.push_back(graph::is_temporary(static_cast<graph::Owner>(i)) ? factor : 1);
  }

  Experiment run() {
    if (options_.prefill) prefill();
    if (options_.decode && !result_.oom) decode();
    if (result_.oom) {
      drop_times();
    } else if (options_.effects != Effects::kNone) {
      effects();
    }
    return std::move(result_);
  }

 private:
  // Runs one stream of work and stores memory peaks and counts. If an allocation does not fit, stores it and returns
  // false.
  bool simulate(const engine::System& system, TimedRun& run, const std::string& phase,
                std::ostream* chrome_trace = nullptr) {
    const auto begin = Clock::now();
    const engine::Outcome outcome =
        chrome_trace == nullptr ? engine::run(system, run.source, &run.recorder) : run_with_trace(run, *chrome_trace);
    result_.engine_wall_s += std::chrono::duration<double>(Clock::now() - begin).count();
    result_.engine_ops += outcome.ops;
    result_.engine_events += outcome.events;
    const std::vector<std::string>& names = graph::owner_names();
    for (const engine::PoolPeak& peak : outcome.peaks) {
      const double capacity = system.pools[peak.pool].capacity_bytes;
      const auto raise = [&](result::PoolUse& use) {
        const graph::Pool pool = peak.pool == 0 ? graph::Pool::kHbm : graph::Pool::kDram;
        use.capacity = capacity;
        use.capacity_spread = usual_.model.capacity_spread(pool);
        use.capacity_origin = usual_.model.capacity_origin(pool);
        if (peak.peak_bytes <= use.peak) return;
        use.peak = peak.peak_bytes, use.owners = name_owners(peak.owners, names);
        use.uncounted = lowered_.framework.unfused && peak.pool == 0 ? result::kUncountedUnfused * use.peak : 0;
      };
      raise(peak.pool == 0 ? result_.hbm : result_.dram);
      if (peak.pool == 0 && decoding_) raise(result_.decode_hbm);
    }
    if (!outcome.out_of_memory) return true;
    const engine::OutOfMemory& oom = *outcome.out_of_memory;
    const OpNote note = run.source.note(oom.tag);
    const std::string moment = note.layer >= 0 ? fmt::format("{}, layer {}", phase, note.layer) : phase;
    result_.oom =
        result::OutOfMemory{system.pools[oom.pool].name,    moment,          oom.requested, oom.in_use, oom.capacity,
                            name_owners(oom.owners, names), names[oom.owner]};
    return false;
  }

  engine::Outcome run_with_trace(TimedRun& run, std::ostream& out) const {
    engine::TimelineLog log;
    engine::BothObservers both(run.recorder, log);
    const engine::Outcome outcome = engine::run(usual_.system, run.source, &both);
    const Waits waits(log.records(), run.source);
    engine::write_timeline(out, usual_.system, log,
                           [&](const engine::Record& record) { return timeline_label(record, waits, run.source); });
    return outcome;
  }

  // Discards the times from before an allocation failed: they are not meaningful without the rest.
  void drop_times() {
    result_.ttft_s = result_.first_ttft_s = result_.tpot_mean_s = 0;
    result_.traffic = {};
    result_.step = result_.prefill = {};
  }

  const Machine& prefill_machine() const { return slower_ ? *slower_ : usual_; }

  // All blocks, and those of the group that is repeated; weights count blocks.
  std::vector<RecordedBlocks> recorded_prefill() const {
    const std::size_t all = lowered_.prefill->blocks.size();
    const lower::Repetition& groups = lowered_.prompt_groups;
    RecordedBlocks blocks{&prefill_machine().system, &prefill_->source, &prefill_->recorder, 0, all,
                          static_cast<double>(all),  /*steady=*/false};
    std::vector<RecordedBlocks> recorded{blocks};
    if (groups.times == 0) return recorded;
    blocks.first = groups.first, blocks.count = groups.group;
    blocks.weight = static_cast<double>(groups.group) * static_cast<double>(groups.times);
    recorded.push_back(blocks);
    return recorded;
  }

  // Seconds of a group of prompts, from the end of the one before it.
  double group_seconds(std::size_t first_block) const {
    const Recorder& recorder = prefill_->recorder;
    const std::size_t last = first_block + lowered_.prompt_groups.group - 1;
    return to_seconds(recorder.block_ends()[last] - recorder.start_of(first_block));
  }

  bool prefill_on(Machine& machine) {
    prefill_.emplace(*lowered_.prefill, machine.costs, 0, scales_, options_.cancel);
    if (!simulate(machine.system, *prefill_, "prefill")) return false;
    const lower::Repetition& groups = lowered_.prompt_groups;
    const double left_out = static_cast<double>(groups.times) * group_seconds(groups.first);
    result_.ttft_s = lowered_.micro_batches_behind * (to_seconds(prefill_->recorder.block_ends().back()) + left_out);
    result_.first_ttft_s = group_seconds(0);
    return true;
  }

  // Returns whether the repeated group took longer than the one before it, or left more work to the next one.
  bool groups_differ() const {
    const lower::Repetition& groups = lowered_.prompt_groups;
    if (groups.times == 0) return false;
    const Recorder& recorder = prefill_->recorder;
    const double before = group_seconds(groups.first - groups.group), repeated = group_seconds(groups.first);
    const Picoseconds growth = recorder.lag(groups.first + groups.group - 1) - recorder.lag(groups.first - 1);
    return std::abs(repeated - before) > kSameGroup * before || to_seconds(growth) > kSameGroup * before;
  }

  void prefill() {
    KVCAST_CHECK(lowered_.prefill);
    if (!prefill_on(usual_)) return;
    if (hardware::sustained_share(hardware_.gpu, result_.ttft_s) < 1) {
      slower_.emplace(lowered_, hardware::sustained(hardware_, result_.ttft_s), options_);
      if (!prefill_on(*slower_)) return;
    }
    for (const RecordedBlocks& blocks : recorded_prefill()) {
      add_scaled(result_.prefill, attribute_blocks(blocks), lowered_.micro_batches_behind * blocks.weight);
    }
    result_.unsettled = groups_differ();
  }

  void decode() {
    KVCAST_CHECK(!lowered_.contexts.empty());
    decoding_ = true;
    for (std::size_t i = 0; i < lowered_.contexts.size(); ++i) {
      const DecodeSteps& steps = lowered_.contexts[i];
      Window& window = windows_.emplace_back(steps, usual_.costs, scales_, options_.cancel);
      std::ostream* const trace = i == lowered_.middle ? options_.chrome_trace : nullptr;
      if (!simulate(usual_.system, window.run, fmt::format("decode at {} tokens", steps.held), trace)) return;
      add_scaled(result_.step, attribute_blocks(window.recorded(usual_.system)), steps.weight);
    }
    const Window& middle = windows_[lowered_.middle];
    result_.unsettled = result_.unsettled || has_backlog(middle);
    if (options_.timeline) {
      result_.timeline = timeline_spans(middle.run.recorder, middle.run.source, middle.steps->stream.blocks.size() - 1);
    }
    std::vector<double> all;
    for (const Window& window : windows_) {
      const std::vector<double> seconds = steps_like(middle, window);
      result_.tpot_mean_s += window.steps->weight * mean(seconds);
      result_.traffic += traffic_like(middle, window).scaled(window.steps->weight);
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
    // A pass that verifies yields several tokens: all numbers of a step are those of one token.
    const double each = 1 / lowered_.tokens_per_pass;
    result_.tpot_mean_s *= each, result_.traffic = result_.traffic.scaled(each);
    result_.tpot_p50_s = each * quantile(all, 0.5);
    result_.tpot_p99_s = each * quantile(all, 0.99);
    result_.tokens_per_s = lowered_.batch / result_.tpot_mean_s;
    to_mean_step_ = result_.tpot_mean_s / result_.step.total();
    result_.step = scaled(result_.step, to_mean_step_);
  }

  // Returns whether recalls and other work that overlaps with the steps fall behind over the measured steps.
  static bool has_backlog(const Window& window) {
    const Recorder& recorder = window.run.recorder;
    const std::size_t last = window.steps->stream.blocks.size() - 1;
    if (window.steps->warmup == 0 || window.steps->warmup > last) return false;
    const Picoseconds growth = recorder.lag(last) - recorder.lag(window.steps->warmup - 1);
    return to_seconds(growth) > kBacklog * mean(window.seconds());
  }

  // Seconds of the middle window's steps at another window's context. The steps that both windows measure give the
  // difference between the contexts.
  static std::vector<double> steps_like(const Window& middle, const Window& window) {
    std::vector<double> here = window.seconds(), all = middle.seconds();
    if (here.size() == all.size()) return here;
    const double difference = mean(here) - mean(std::span(all).last(here.size()));
    for (double& seconds : all) seconds += difference;
    return all;
  }
  static graph::ByteCounts traffic_like(const Window& middle, const Window& window) {
    const std::size_t common = window.steps->measured();
    graph::ByteCounts traffic = middle.traffic(middle.steps->measured());
    traffic += middle.traffic(common).scaled(-1);
    traffic += window.traffic(common);
    return traffic;
  }

  void effects() {
    const bool detailed = options_.effects == Effects::kDetailed;
    std::vector<TimeEffect> on_step, on_prefill;
    if (options_.decode) {
      std::vector<RecordedBlocks> blocks;
      for (std::size_t i = 0; i < windows_.size(); ++i) {
        if (detailed || i == lowered_.middle) blocks.push_back(windows_[i].recorded(usual_.system));
      }
      on_step = time_effects(blocks, kLeastEffect, detailed);
      result_.unsettled =
          result_.unsettled || std::ranges::any_of(on_step, [](const TimeEffect& e) { return e.unsettled; });
    }
    if (options_.prefill) {
      on_prefill = time_effects(recorded_prefill(), kLeastEffect, detailed);
    }
    merge(std::move(on_step), std::move(on_prefill));
    if (is_eager() && lowered_.framework.left_out == 0) narrow(config::left_out().eager_costs);
    add_left_out();
    if (detailed || !options_.decode) return;
    if (const double factor = sampling_factor(); factor >= 1 + kLeastEffect) {
      result_.effects.push_back({result::kTraceSample, {result::kTraceSample}, {}, {}});
      result_.effects.back().longer.step = factor, result_.effects.back().shorter.step = 1 / factor;
    }
  }

  void merge(std::vector<TimeEffect> on_step, std::vector<TimeEffect> on_prefill) {
    const auto effect_of = [this](const std::string& source) -> result::Effect& {
      auto& all = result_.effects;
      const auto at = std::lower_bound(all.begin(), all.end(), source,
                                       [](const result::Effect& e, const std::string& s) { return e.source < s; });
      if (at != all.end() && at->source == source) return *at;
      return *all.insert(at, {source, keys_of(usual_.model.hardware(), usual_.model.framework(), source), {}, {}});
    };
    for (TimeEffect& e : on_step) {
      result::Effect& effect = effect_of(e.source);
      effect.longer.step = e.longer, effect.shorter.step = e.shorter;
      if (e.longer_time) effect.longer.step_parts = scaled(*e.longer_time, to_mean_step_);
      if (e.shorter_time) effect.shorter.step_parts = scaled(*e.shorter_time, to_mean_step_);
    }
    for (TimeEffect& e : on_prefill) {
      result::Effect& effect = effect_of(e.source);
      effect.longer.prefill = e.longer, effect.shorter.prefill = e.shorter;
      if (e.longer_time) effect.longer.prefill_parts = scaled(*e.longer_time, lowered_.micro_batches_behind);
      if (e.shorter_time) {
        effect.shorter.prefill_parts = scaled(*e.shorter_time, lowered_.micro_batches_behind);
      }
    }
  }

  bool is_eager() const { return lowered_.framework.launch == config::Framework::Launch::kEager; }

  // Leaves a share of each effect, in logarithms. The parts still add up to the shifted time.
  void narrow(double share) {
    const auto narrow_one = [share](double& factor, std::optional<metrics::Attribution>& parts,
                                    const metrics::Attribution& as_is) {
      const double wide = std::exchange(factor, std::pow(factor, share));
      if (!parts) return;
      const double kept = wide == 1 ? share : (factor - 1) / (wide - 1);
      parts = scaled(*parts, kept);
      add_scaled(*parts, as_is, 1 - kept);
    };
    for (result::Effect& effect : result_.effects) {
      for (result::ShiftedTimes* times : {&effect.longer, &effect.shorter}) {
        narrow_one(times->step, times->step_parts, result_.step);
        narrow_one(times->prefill, times->prefill_parts, result_.prefill);
      }
    }
  }

  // Adds the causes of error that no number of a profile covers: times may be longer and shorter by these factors.
  void add_left_out() {
    const auto add_both = [this](std::string source, double of_step, double of_prompt) {
      result::Effect effect{std::move(source), {}, {}, {}};
      effect.keys = {effect.source};
      for (auto& [times, sign] : {std::pair{&effect.longer, 1}, std::pair{&effect.shorter, -1}}) {
        times->step = std::exp(sign * of_step), times->prefill = std::exp(sign * of_prompt);
        if (options_.effects != Effects::kDetailed) continue;
        times->step_parts = scaled(result_.step, times->step);
        times->prefill_parts = scaled(result_.prefill, times->prefill);
      }
      result_.effects.push_back(std::move(effect));
    };
    const auto add = [&](std::string source, double half_width) {
      add_both(std::move(source), half_width, half_width);
    };
    const config::OutsideErrors out = config::left_out();
    const bool eager = is_eager();
    if (const double measured = lowered_.framework.left_out; measured > 0) {
      add("what the model leaves out of steps like the measured ones", measured);
    } else if (eager) {
      add_both("what the model leaves out of eager frameworks", out.eager, out.eager_prompts);
    } else {
      add("what the model leaves out of fused runtimes", out.fused);
    }
    if (!lowered_.full_attention && lowered_.framework.engine_step > 0) {
      add("what the model leaves out of policies in serving engines", out.policies);
    } else if (!lowered_.full_attention && eager) {
      add("what the model leaves out of policies in eager frameworks", out.eager_policies);
    }
    const config::Hardware& machine = usual_.model.hardware();
    // Measured steps contain what the machine's kernels lack.
    if (machine.fit == config::TimesOrigin::kFitted || lowered_.framework.left_out > 0) return;
    add("no fit of " + machine.title, out.of(machine.fit));
  }

  // Factor by which a step may be longer or shorter than with all layers of the model replayed; 1 if it does not depend
  // on the choice of replayed layers.
  double sampling_factor() {
    std::vector<double> logarithms;
    for (const DecodeSteps& part : lowered_.parts) {
      TimedRun run(part.stream, usual_.costs, part.stream.blocks.size(), scales_, options_.cancel);
      engine::run(usual_.system, run.source, &run.recorder);
      logarithms.push_back(std::log(mean(step_seconds(part, run.recorder))));
    }
    if (logarithms.empty()) return 1;
    // Layers are drawn without replacement: with all layers replayed there is no sampling error.
    return std::exp(half_width_of_mean(logarithms) * std::sqrt(1 - lowered_.replayed_layers));
  }

  const Lowered& lowered_;
  const config::Hardware& hardware_;  // the whole host; a cost model has one GPU's share of it
  const ExperimentOptions& options_;
  Machine usual_;
  std::optional<Machine> slower_;  // for a prompt that takes so long that the board slows down
  std::vector<double> scales_;
  std::optional<TimedRun> prefill_;
  std::deque<Window> windows_;
  bool decoding_ = false;
  // Only the last steps of a window are attributed. This makes their parts add up to the mean over all measured steps.
  double to_mean_step_ = 1;
  Experiment result_;
};

}  // namespace

Experiment simulate(const Lowered& lowered, const config::Hardware& hardware, const ExperimentOptions& options) {
  return Simulation(lowered, hardware, options).run();
}

}  // namespace kvcast::simulate
