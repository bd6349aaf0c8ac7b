#include "study/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/error.hpp"
#include "hardware/cost_model.hpp"
#include "policy/growth.hpp"
#include "result/metric.hpp"
#include "simulate/index_build.hpp"
#include "study/accuracy.hpp"
#include "study/combine.hpp"

namespace kvcast::study {
namespace {

using Clock = std::chrono::steady_clock;
using result::Direction;
using result::Result;
using result::Status;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The amount of memory and the size of activations are uncertain.
constexpr std::array kMemorySources = {hardware::kDeviceMemory, hardware::kHostMemory, result::kTemporaries};

constexpr const char* kMemory = "memory";  // all of them, if they form one alternative

Result begin_result(const Task& task) {
  Result result;
  result.key = task.prepared.key;
  result.subject = subject_of(task.prepared);
  result.subject.swept = task.point.swept;
  return result;
}

}  // namespace

Replayed::Replayed(std::unique_ptr<const policy::Policy> policy, replay::ReplayResult replayed,
                   const score::ScoreModel& scores, bool rounds)
    : policy_(std::move(policy)), replayed_(std::move(replayed)), accuracy_(accuracy_of(replayed_, scores)) {
  if (!rounds || !accuracy_.task) return;
  accuracy_.task.reset();
  accuracy_.task_refused = "the policy rounds the cache, and the score model knows only lost tokens";
}

namespace {

// Many policies do the same work on every text, so that one trace's times are all traces' times.
result::Experiment timed_by(const std::shared_ptr<const simulate::Lowered>& work, const config::Hardware& hardware,
                            const simulate::ExperimentOptions& options, std::vector<Replayed::Timed>& timed) {
  for (const Replayed::Timed& earlier : timed) {
    if (!simulate::same_work(*earlier.work, *work)) continue;
    result::Experiment same = earlier.experiment;
    same.engine_ops = same.engine_events = 0, same.engine_wall_s = 0;  // nothing was simulated for it
    return same;
  }
  timed.push_back({work, simulate::simulate(*work, hardware, options)});
  return timed.back().experiment;
}

}  // namespace

std::shared_ptr<const simulate::Lowered> Replayed::lower(const config::Run& run, const Replays& shorter,
                                                         const simulate::LoweringOptions& what) const {
  simulate::ExperimentInput input{&run, policy_.get(), &replayed_};
  for (const auto& other : shorter) input.shorter.push_back({&other->policy(), &other->replay()});
  return std::make_shared<const simulate::Lowered>(simulate::lower_experiment(input, what));
}

result::Accuracy Replayed::accuracy_at(std::int64_t prompt, const config::Run& run) const {
  result::Accuracy accuracy = accuracy_;
  // While everything fits in the budget nothing is lost, which says nothing about the steps after that.
  if (policy::fills_later(replayed_.growth, replayed_.prompt_tokens + replayed_.decode_steps,
                          prompt + run.workload.decode_tokens)) {
    accuracy.origin = worse(accuracy.origin, Origin::kExtrapolated);
  }
  return accuracy;
}

Result Replayed::on_machine(const Task& task, std::size_t trace, const Replays& shorter, const PointVariant& variation,
                            std::vector<Timed>& timed, SharedWork& shared) const {
  const auto begin = Clock::now();
  const Ask& ask = task.point.ask;
  config::Run run = task.prepared.run;
  run.workload.set_batch(variation.batch);
  simulate::ExperimentOptions options;
  options.shift = variation.shift, options.cancel = variation.cancel;
  if (variation.fits_only) {
    // The prefill and the ends of decoding decide whether it fits; step times are not needed.
    run.framework.warmup_steps = 0, run.framework.measured_steps = 1, run.framework.sampled_contexts = 2;
  } else if (variation.shift.source.empty()) {
    options.effects = ask.effects;
    if (timed.empty()) options.timeline = ask.timeline, options.chrome_trace = ask.chrome_trace;
  }
  Result result = begin_result(task);
  set_batch(result.subject, run.workload);
  simulate::LoweringOptions what;
  what.cancel = variation.cancel;
  what.parts = options.effects == simulate::Effects::kTimes;
  const auto run_it = [&] {
    const std::string key =
        fmt::format("{} {} {}{}{}{} {}", task.prepared.traces[trace].lowered, variation.batch,
                    run.workload.prompt_tokens, variation.fits_only ? " fits" : "", what.parts ? " parts" : "",
                    what.all_warmup ? " all warm-up" : "", shorter.empty() ? "" : task.prepared.replays);
    auto work = shared.lowered().find(key);
    // Two threads may lower the same work at the same time; that is rare, and cheaper than waiting for each other.
    if (!work) {
      work = lower(run, shorter, what);
      work = shared.lowered().put(key, work, simulate::bytes_of(*work));
    }
    result.experiment = timed_by(work, run.hardware, options, timed);
  };
  run_it();
  if (result.experiment.unsettled && !variation.fits_only) what.all_warmup = true, run_it();
  result.status = result.experiment.oom ? Status::kOom : Status::kOk;
  const std::vector<config::Workload::Prompts> lengths = run.workload.by_length();
  std::vector<AccuracyShare> accuracies;
  for (std::size_t i = 0; i < shorter.size(); ++i)
    accuracies.push_back({shorter[i]->accuracy_at(lengths[i].tokens, run), lengths[i].sequences});
  accuracies.push_back({accuracy_at(lengths.back().tokens, run), lengths.back().sequences});
  result.accuracy = mean_accuracy(accuracies);
  if (result.accuracy.prompt_density) {
    const double dense = static_cast<double>(replayed_.dense_layers) / run.model.attending_layers();
    for (auto* const share : {&result.accuracy.prompt_density, &result.accuracy.prompt_recall_mass_mean})
      *share = dense + (1 - dense) * **share;
  }
  result.wall_s = seconds_since(begin);
  return result;
}

namespace {

// Simulates a point on all of its traces.
class PointSimulation {
 public:
  PointSimulation(const Task& task, const Replays& replays, SharedWork& shared, const Cancel& cancel)
      : task_(task), ask_(task.point.ask), replays_(replays), shared_(shared), cancel_(cancel) {}

  Result run() const {
    if (ask_.largest_batch > 0) return at_largest_batch();
    Result result = on_all_texts({task_.prepared.run.workload.batch, false, {}});
    add_fit(result);
    return result;
  }

 private:
  // Prompts of different lengths have a trace of each text at each length (at_lengths).
  std::size_t texts() const {
    const config::Run& run = task_.prepared.run;
    if (run.workload.prompts.empty()) return replays_.size();
    const auto& traces = run.traces;
    return static_cast<std::size_t>(
        std::ranges::count(traces, traces.front().prompt_tokens, &config::TraceChoice::prompt_tokens));
  }

  Result on_text(std::size_t text, const PointVariant& variation, std::vector<Replayed::Timed>& timed) const {
    const config::Run& run = task_.prepared.run;
    if (run.workload.prompts.empty()) return replays_[text]->on_machine(task_, text, {}, variation, timed, shared_);
    config::Workload workload = run.workload;
    workload.set_batch(variation.batch);
    std::vector<std::size_t> used;  // a small batch may not have all lengths
    for (std::size_t i = text; i < replays_.size(); i += texts()) {
      const auto lengths = workload.by_length();
      if (std::ranges::count(lengths, run.traces[i].prompt_tokens, &config::Workload::Prompts::tokens) > 0)
        used.push_back(i);
    }
    Replays shorter;
    for (const std::size_t i : std::span(used).first(used.size() - 1)) shorter.push_back(replays_[i]);
    return replays_[used.back()]->on_machine(task_, used.back(), shorter, variation, timed, shared_);
  }

  Result on_all_texts(PointVariant variation) const {
    variation.cancel = cancel_;
    std::vector<Result> on_traces;
    std::vector<Replayed::Timed> timed;
    for (std::size_t text = 0; text < texts(); ++text) on_traces.push_back(on_text(text, variation, timed));
    const bool as_asked = variation.shift.source.empty() && !variation.fits_only;
    return combine(std::move(on_traces), as_asked ? ask_.effects : simulate::Effects::kNone);
  }

  bool fits(int batch, const hardware::Shift& shift) const {
    std::vector<Replayed::Timed> timed;
    for (std::size_t text = 0; text < texts(); ++text) {
      if (on_text(text, {batch, true, shift, cancel_}, timed).status != Status::kOk) return false;
    }
    return true;
  }

  // The batch of the request, limited to what the engine serves at a time.
  int most_sequences() const {
    const int served = task_.prepared.run.framework.max_batch;
    return served > 0 ? std::min(served, ask_.largest_batch) : ask_.largest_batch;
  }

  // The largest batch from `known_to_fit` to `limit` that fits in memory.
  int largest_batch(int known_to_fit, int limit, const hardware::Shift& shift) const {
    while (known_to_fit < limit) {
      const int middle = known_to_fit + (limit - known_to_fit + 1) / 2;
      if (fits(middle, shift)) {
        known_to_fit = middle;
      } else {
        limit = middle - 1;
      }
    }
    return known_to_fit;
  }

  // The same with memory shifted, starting from the unshifted result: at least 1.
  int largest_batch_shifted(int batch, const hardware::Shift& shift) const {
    const int limit = most_sequences();
    if (shift.sign > 0) return fits(batch, shift) ? batch : largest_batch(1, std::max(1, batch - 1), shift);
    return batch < limit && fits(batch + 1, shift) ? largest_batch(batch + 1, limit, shift) : batch;
  }

  // Returns whether one memory source alone might decide otherwise whether it fits.
  static bool is_near(const result::Experiment& e) {
    const auto crosses = [&](const result::PoolUse& pool, double bytes) {
      const double temporary = result::temporary_bytes(pool) * result::kTemporarySpread;
      return std::abs(bytes - pool.capacity) <= std::max(pool.capacity_spread, temporary);
    };
    if (!e.oom) return crosses(e.hbm, e.hbm.peak) || crosses(e.dram, e.dram.peak);
    // Later allocations are not known; what is there already must at least fit.
    const result::PoolUse& pool = e.oom->pool == "hbm" ? e.hbm : e.dram;
    const double bytes = e.oom->in_use + e.oom->requested;
    const double temporary = (result::temporary_bytes({.owners = e.oom->owners}) +
                              (result::is_temporary(e.oom->requested_for) ? e.oom->requested : 0)) *
                             result::kTemporarySpread;
    return bytes - std::max(pool.capacity_spread, temporary) <= pool.capacity;
  }

  // The answer to whether it fits is uncertain as well: tries less memory or more activations if it fits, and the
  // opposite if it does not. One alternative covers all of these, since it fits or not.
  void add_fit(Result& result) const {
    if (!is_near(result.experiment)) return;
    const bool fits_as_is = result.status == Status::kOk;
    const int batch = static_cast<int>(result.subject.batch);
    for (const char* source : kMemorySources) {
      Result other = on_all_texts({batch, true, {source, fits_as_is ? 1.0 : -1.0}});
      if ((other.status == Status::kOk) == fits_as_is) continue;
      result.borderline = true;
      if (!ask_.fit_effects) return;
      result::Alternative alternative{kMemory, nullptr, nullptr};
      (fits_as_is ? alternative.longer : alternative.shorter) = std::make_shared<const Result>(std::move(other));
      result.alternatives.push_back(std::move(alternative));
      return;
    }
  }

  // Adds the result at another largest batch, if less memory or more activations, or the opposite, lead to one.
  void add_batch_alternatives(Result& result) const {
    const int batch = static_cast<int>(result.subject.batch);
    for (const char* source : kMemorySources) {
      result::Alternative other{source, nullptr, nullptr};
      for (const Direction direction : {Direction::kLonger, Direction::kShorter}) {
        const hardware::Shift shift{source, direction == Direction::kLonger ? 1.0 : -1.0};
        const int instead = largest_batch_shifted(batch, shift);
        if (instead == batch) continue;
        auto& slot = direction == Direction::kLonger ? other.longer : other.shorter;
        slot = std::make_shared<const Result>(on_all_texts({instead, false, shift}));
      }
      if (other.longer || other.shorter) result.alternatives.push_back(std::move(other));
    }
  }

  Result at_largest_batch() const {
    Result result = on_all_texts({largest_batch(1, most_sequences(), {}), false, {}});
    const bool fits = result.status == Status::kOk;
    if (fits && ask_.effects == simulate::Effects::kDetailed) add_batch_alternatives(result);
    if (!fits || ask_.effects != simulate::Effects::kDetailed) add_fit(result);
    return result;
  }

  const Task& task_;
  const Ask& ask_;
  const Replays& replays_;
  SharedWork& shared_;
  const Cancel& cancel_;
};

// The task of a batch of mean requests of a run with traffic, on the traces of the length nearest to the mean, and
// their replays.
std::pair<Task, Replays> reference_of(const Task& task, const Replays& replays) {
  std::pair<Task, Replays> out{task, {}};
  Prepared& p = out.first.prepared;
  const auto distance = [&](const config::TraceChoice& choice) {
    return std::abs(std::log(static_cast<double>(choice.prompt_tokens) / task.prepared.requests->mean_prompt));
  };
  const auto& all = task.prepared.run.traces;
  const config::TraceChoice nearest = *std::ranges::min_element(all, {}, distance);
  p.run.traces.clear(), p.traces.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].prompt_tokens != nearest.prompt_tokens) continue;
    p.run.traces.push_back(all[i]), p.traces.push_back(task.prepared.traces[i]);
    out.second.push_back(replays[i]);
  }
  // Counts of the uncompressed cache follow from a replay of any length.
  if (!p.policy->uncompressed()) p.run.workload.prompt_tokens = nearest.prompt_tokens;
  return out;
}

// A text that determines the times of passes, but for the lengths of the requests.
std::string times_key(const Task& task) {
  const Prepared& p = task.prepared;
  static const std::vector<std::string_view> kOthers = {
      "name",   "description", "traffic", "scheduler", "score",    "price_per_hour", "match",
      "policy", "trace",       "traces",  "model",     "hardware", "framework"};
  return fmt::format("{} {} {} {} {} {} {} {}", p.replays, p.run.policy.name, p.run.policy.parameters.canonical(),
                     p.run.workload.decode_tokens, config::canonical(p.run.model), config::canonical(p.run.hardware),
                     config::canonical(p.run.framework), task.point.config.without(kOthers).canonical());
}

Result serve(const Task& task, const Replays& replays, SharedWork& work, const Cancel& cancel, int threads) {
  const Prepared& p = task.prepared;
  ServiceInput input;
  input.run = &p.run, input.lengths = *p.requests;
  input.log = task.point.ask.requests, input.observer = task.point.ask.observer, input.cancel = cancel;
  input.threads = threads;
  input.intervals = task.point.ask.effects != simulate::Effects::kNone;
  input.shared = &work, input.times_key = times_key(task);
  input.replays.assign(replays.begin(), replays.end());
  // All texts at each of the lengths, which are in ascending order.
  input.passes.run = &p.run;
  const auto of_length = [&](std::size_t i) { return p.run.traces[i].prompt_tokens; };
  std::size_t texts = 0;
  while (texts < replays.size() && of_length(texts) == of_length(0)) ++texts;
  input.passes.other_texts.resize(texts - 1);
  for (std::size_t i = 0; i < replays.size(); ++i) {
    const std::size_t text = i % texts;
    auto& of_text = text == 0 ? input.passes.replays : input.passes.other_texts[text - 1];
    of_text.push_back({&replays[i]->policy(), &replays[i]->replay()});
    input.attended = replays[i]->replay().proxies.attended_mean;
  }
  auto [reference, on_traces] = reference_of(task, replays);
  Task& batch_task = reference;
  const Replays& batch_replays = on_traces;
  const config::Workload& workload = batch_task.prepared.run.workload;
  const Ask& ask = task.point.ask;
  const bool shared = !ask.timeline && ask.chrome_trace == nullptr;
  return serve_requests(input, [&](int batch) {
    batch_task.prepared.run.workload.batch = batch;
    const std::string key = fmt::format("{} {} {} {} {}", batch, workload.prompt_tokens, static_cast<int>(ask.effects),
                                        ask.fit_effects, input.times_key);
    const auto kept = shared ? work.batches().find(key) : nullptr;
    Result result = kept ? *kept : PointSimulation(batch_task, batch_replays, work, cancel).run();
    if (kept) {
      Result own = begin_result(batch_task);
      set_batch(own.subject, workload);
      result.key = std::move(own.key), result.subject = std::move(own.subject);
    } else if (shared && result.alternatives.empty()) {
      work.batches().put(key, std::make_shared<const Result>(result));
    }
    // All policies serve the same requests, whatever lengths their replays had.
    result.subject.prompt_tokens = p.run.workload.prompt_tokens;
    return result;
  });
}

}  // namespace

Result result_of(const Task& task, const Replays& replays, SharedWork& shared, const Cancel& cancel, int threads) {
  KVCAST_CHECK(replays.size() == task.prepared.traces.size());
  if (task.prepared.run.traffic) return serve(task, replays, shared, cancel, threads);
  return PointSimulation(task, replays, shared, cancel).run();
}

Result build_index(const Task& task) {
  const config::Run& run = task.prepared.run;
  const Ask& ask = task.point.ask;
  if (ask.index_heads > run.model.n_kv_heads) {
    throw UserError(ask.index_heads_at, fmt::format("index_heads: the model has {} KV heads", run.model.n_kv_heads));
  }
  Result result = begin_result(task);
  result.build =
      simulate::build_index(run, *task.prepared.made, ask.index_heads, ask.effects != simulate::Effects::kNone);
  return result;
}

}  // namespace kvcast::study
