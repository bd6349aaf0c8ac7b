// Prefill is simulated once, whole. Decode is simulated in windows of steps at a few contexts between the first and the
// last generated token; in each, the first steps are warm-up (caches fill, pipelines reach their pace) and are dropped.
// The mean over the decode length follows by Simpson's rule over the contexts: time per token is close to linear in
// context.
#include "workload/experiment.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/quantile.hpp"
#include "engine/timeline.hpp"
#include "lower/prefill.hpp"
#include "workload/memory_interval.hpp"
#include "workload/timed.hpp"

namespace kvcast::workload {
namespace {

using Clock = std::chrono::steady_clock;

// Steps at the end of a window whose time is charged op by op.
constexpr int kAttributedSteps = 3;
// Seed of the draws that let replayed steps stand for all layers, sequences and steps.
constexpr std::uint64_t kDrawSeed = 1;

struct Window {
  std::vector<double> step_seconds;  // measured steps
  metrics::Attribution attribution;  // of the attributed steps
  int attributed = 0;
  graph::Traffic traffic;  // mean over measured steps
};

std::vector<OwnedBytes> name_owners(const std::vector<engine::OwnerBytes>& owners,
                                    const std::vector<std::string>& names) {
  std::vector<OwnedBytes> out;
  for (const engine::OwnerBytes& o : owners) out.push_back({names[o.owner], o.bytes});
  return out;
}

class Runner {
 public:
  Runner(const ExperimentInput& input, const ExperimentOptions& options)
      : input_(input),
        options_(options),
        run_(*input.run),
        costs_(run_.hardware, run_.framework, options.shift),
        draw_(draw_counts(input)),
        setting_(decode_setting(input, draw_)) {
    setting_.temporaries = temporaries_when_off(options.shift);
  }

  Experiment run() {
    if (options_.prefill) prefill();
    if (options_.decode && !result_.oom) decode();
    if (result_.oom) drop_times();
    return std::move(result_);
  }

 private:
  // Runs one stream of work; keeps peaks, counts and an allocation that did not fit.
  bool simulate(TimedSource& source, lower::Owners& owners, Recorder& recorder, const std::string& phase,
                std::ostream* chrome_trace = nullptr) {
    const engine::System system = make_system(costs_, owners.names());
    const auto begin = Clock::now();
    const engine::Outcome outcome = chrome_trace == nullptr ? engine::run(system, source, &recorder)
                                                            : run_with_trace(system, source, recorder, *chrome_trace);
    result_.engine_wall_s += std::chrono::duration<double>(Clock::now() - begin).count();
    result_.engine_ops += outcome.ops;
    result_.engine_events += outcome.events;
    for (const engine::PoolPeak& peak : outcome.peaks) {
      const double capacity = system.pools[peak.pool].capacity_bytes;
      const auto raise = [&](PoolUse& use) {
        use.capacity = capacity;
        if (peak.peak_bytes <= use.peak) return;
        use.peak = peak.peak_bytes, use.owners = name_owners(peak.owners, owners.names());
      };
      raise(peak.pool == 0 ? result_.hbm : result_.dram);
      if (peak.pool == 0 && decoding_) raise(result_.decode_hbm);
    }
    if (!outcome.out_of_memory) return true;
    const engine::OutOfMemory& oom = *outcome.out_of_memory;
    const OpNote note = source.note(oom.tag);
    const std::string moment = note.layer >= 0 ? fmt::format("{}, layer {}", phase, note.layer) : phase;
    result_.oom = OutOfMemory{system.pools[oom.pool].name,
                              moment,
                              oom.requested,
                              oom.in_use,
                              oom.capacity,
                              name_owners(oom.owners, owners.names()),
                              owners.names()[oom.owner]};
    return false;
  }

  static engine::Outcome run_with_trace(const engine::System& system, TimedSource& source, Recorder& recorder,
                                        std::ostream& out) {
    engine::TimelineWriter writer(out, system, [&source](std::uint64_t tag) {
      const OpNote note = source.note(tag);
      engine::TimelineLabel label{note.label, std::string(graph::kind_name(note.kind)), {}};
      if (note.layer >= 0) label.numbers.emplace_back("layer", note.layer);
      return label;
    });
    engine::BothObservers both(recorder, writer);
    return engine::run(system, source, &both);
  }

  // What came out before something did not fit is part of a result and none by itself.
  void drop_times() {
    result_.ttft_s = result_.tpot_mean_s = 0;
    result_.traffic = {};
    result_.step = result_.prefill = {};
  }

  void prefill() {
    lower::Owners owners;
    lower::Prefill work(setting_, owners);
    TimedSource source(work, costs_);
    Recorder recorder(source, 0);
    if (!simulate(source, owners, recorder, "prefill")) return;
    const Picoseconds end = recorder.block_ends().back();
    result_.ttft_s = to_seconds(end);
    result_.prefill = metrics::attribute(recorder.spans(0, end), 0, end);
  }

  void decode() {
    decoding_ = true;
    const std::vector<double> weights = context_weights();
    const std::int64_t first = setting_.lengths.prompt_tokens + 1;
    const auto samples = static_cast<int>(weights.size());
    std::vector<double> steps;
    for (int i = 0; i < samples && !result_.oom; ++i) {
      const double share = samples == 1 ? 0.5 : static_cast<double>(i) / (samples - 1);
      const auto at =
          first + static_cast<std::int64_t>(std::llround(share * static_cast<double>(run_.workload.decode_tokens - 1)));
      const Window window = decode_window(at, i == samples / 2);
      if (result_.oom) return;
      const double weight = weights[static_cast<std::size_t>(i)];
      result_.tpot_mean_s += weight * mean(window.step_seconds);
      result_.traffic += window.traffic.scaled(weight);
      merge(window.attribution, weight / window.attributed);
      steps.insert(steps.end(), window.step_seconds.begin(), window.step_seconds.end());
    }
    result_.tpot_p50_s = quantile(steps, 0.5);
    result_.tpot_p99_s = quantile(steps, 0.99);
    result_.tokens_per_s = run_.workload.batch / result_.tpot_mean_s;
  }

  // Weights of equally spaced contexts from the first to the last token: Simpson for 3, 5, ...; trapezoid for even
  // numbers.
  std::vector<double> context_weights() const {
    const auto n =
        static_cast<int>(std::min<std::int64_t>(run_.framework.sampled_contexts, run_.workload.decode_tokens));
    if (n == 1) return {1.0};
    std::vector<double> weights(static_cast<std::size_t>(n), 1.0);
    for (int i = 1; i + 1 < n; ++i) weights[static_cast<std::size_t>(i)] = n % 2 == 0 ? 2.0 : (i % 2 == 1 ? 4.0 : 2.0);
    double sum = 0;
    for (const double w : weights) sum += w;
    for (double& w : weights) w /= sum;
    return weights;
  }

  Window decode_window(std::int64_t at, bool is_middle) {
    const int warmup = run_.framework.warmup_steps;
    const int measured = run_.framework.measured_steps;
    const std::int64_t start = std::max(setting_.lengths.prompt_tokens + 1, at - warmup - (measured - 1) / 2);
    lower::Owners owners;
    lower::DecodeWindow work(setting_, start, warmup + measured, owners);
    TimedSource source(work, costs_);
    Window window;
    window.attributed = std::min(kAttributedSteps, measured);
    // Ops of one step before may still run in the attributed ones.
    Recorder recorder(source, std::max(0, warmup + measured - window.attributed - 1));
    if (!simulate(source, owners, recorder, fmt::format("decode at {} tokens", start),
                  is_middle ? options_.chrome_trace : nullptr)) {
      return window;
    }

    const std::vector<Picoseconds>& ends = recorder.block_ends();
    const auto start_of = [&ends](std::size_t step) { return step == 0 ? Picoseconds{0} : ends[step - 1]; };
    for (int s = warmup; s < warmup + measured; ++s) {
      const auto i = static_cast<std::size_t>(s);
      window.step_seconds.push_back(to_seconds(ends[i] - start_of(i)));
      window.traffic += source.blocks()[i].traffic.scaled(1.0 / measured);
    }
    const std::size_t last = ends.size() - 1;
    const Picoseconds begin = start_of(ends.size() - static_cast<std::size_t>(window.attributed));
    window.attribution = metrics::attribute(recorder.spans(begin, ends[last]), begin, ends[last]);
    if (is_middle && options_.timeline) timeline(recorder, source, start_of(last), ends[last]);
    return window;
  }

  void merge(const metrics::Attribution& part, double weight) {
    const auto add = [weight](auto& into, const auto& from) {
      for (std::size_t i = 0; i < into.size(); ++i) into[i] += weight * from[i];
    };
    add(result_.step.exposed, part.exposed);
    add(result_.step.hidden, part.hidden);
    add(result_.step.bound, part.bound);
    add(result_.step.origin, part.origin);
    result_.step.idle += weight * part.idle;
    add(result_.step.uncertain, part.uncertain);
  }

  void timeline(const Recorder& recorder, const TimedSource& source, Picoseconds begin, Picoseconds end) {
    for (const engine::Record& r : recorder.records()) {
      const OpNote n = source.note(r.tag);
      if (r.finish <= begin || r.start >= end || r.start == r.finish || n.kind == graph::Kind::kMarker) continue;
      result_.timeline.push_back({std::string(graph::lane_name(n.lane)), std::string(graph::kind_name(n.kind)), n.label,
                                  n.layer, to_seconds(r.start - begin), to_seconds(r.finish - r.start)});
    }
  }

  const ExperimentInput& input_;
  const ExperimentOptions& options_;
  const config::Run& run_;
  hardware::CostModel costs_;
  replay::Draw draw_;
  lower::DecodeSetting setting_;
  bool decoding_ = false;
  Experiment result_;
};

}  // namespace

replay::Draw draw_counts(const ExperimentInput& input) {
  return {*input.replay, input.run->model, input.run->workload.batch, Stream(kDrawSeed)};
}

lower::DecodeSetting decode_setting(const ExperimentInput& input, replay::Draw& draw) {
  lower::DecodeSetting setting;
  setting.run = input.run;
  setting.policy = input.policy;
  setting.lengths = {input.run->workload.prompt_tokens, input.run->workload.decode_tokens};
  setting.counts = [&draw](int layer, std::int64_t step) { return draw.heads(layer, step); };
  setting.per_query_head = input.replay->per_query_head;
  setting.counted_tokens = draw.counted_tokens();
  setting.prompt_density = [&draw](int layer) { return draw.prompt_density(layer); };
  setting.attended_mean = input.replay->proxies.attended_mean;
  return setting;
}

Experiment run_experiment(const ExperimentInput& input, const ExperimentOptions& options) {
  return Runner(input, options).run();
}

}  // namespace kvcast::workload
