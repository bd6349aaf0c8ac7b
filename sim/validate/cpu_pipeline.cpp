// Method: each round measures the rate of every kind of work, alone and during dense work, the time of a hand-over, and
// every pipeline once. A round's pipelines are predicted from the rates of the same round, so that drift between rounds
// (clocks, other users of the machine) affects both sides. Rates come from single ops that alternate with dense work;
// no pipeline is used for them, so all pipelines are held out.
#include "validate/cpu_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/quantile.hpp"

namespace kvcast::validate {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kStepBudget = 10, kExposedBudget = 15;  // per cent
// The exposed time is the difference of two step times: if each has an error within 3 %, the difference has an error
// within 15 % only if it is at least a fifth of the step.
constexpr double kLeastExposed = 0.2;
// A median of fewer undisturbed steps is meaningless.
constexpr std::size_t kLeastSamples = 5;
constexpr std::size_t kLeastRounds = 3;
// Number of ops of the larger size from which a rate is measured.
constexpr int kLargeOps = 24;
// MiB of a layer's dense work, before scaling: before attention, in attention, after it.
constexpr double kBefore = 6, kAttention = 4, kAfter = 14, kLayerDense = kBefore + kAttention + kAfter;

struct Plan {
  Pipeline pipeline;
  double moved_mib = 0;  // per layer
};

std::vector<Plan> plans(const PipelineTest& test) {
  const auto make = [&test](const char* name, Scheme scheme, double moved) {
    const double mib = test.scale * kMiB;
    Plan plan{
        make_pipeline(scheme, {kBefore * mib, kAttention * mib, kAfter * mib, moved * mib}, test.layers, test.steps),
        moved * test.scale};
    plan.pipeline.name = name;
    return plan;
  };
  std::vector<Plan> all = {make("dense alone", Scheme::kAlone, 0)};
  for (const double moved : {1, 4, 12}) all.push_back(make("FreeKV, speculative", Scheme::kSpeculative, moved));
  for (const double moved : {1, 4, 12}) all.push_back(make("FreeKV, blocking recall", Scheme::kBlocking, moved));
  for (const double moved : {1, 3, 8}) all.push_back(make("CTkvr, attention on the CPU", Scheme::kBeside, moved));
  return all;
}

class Samples {
 public:
  void add(double seconds, bool disturbed) {
    ++seen_;
    if (!disturbed) kept_.push_back(seconds);
  }
  void add(const PipelineRun& run, int warmup) {
    for (std::size_t i = static_cast<std::size_t>(warmup); i < run.steps.size(); ++i) {
      add(run.steps[i], run.disturbed[i]);
    }
  }
  // Empty if too few samples are left.
  std::optional<double> median() const {
    return kept_.size() < kLeastSamples ? std::nullopt : std::optional(quantile(kept_, 0.5));
  }

  int kept() const { return static_cast<int>(kept_.size()); }
  int seen() const { return seen_; }

 private:
  std::vector<double> kept_;
  int seen_ = 0;
};

double steady(const std::vector<double>& steps, int warmup) {
  return quantile(std::span(steps).subspan(static_cast<std::size_t>(warmup)), 0.5);
}

// `count` dense ops back to back, each of them a step.
Pipeline dense_alone(double bytes, int count) {
  Pipeline p;
  for (int i = 0; i < count; ++i) {
    p.step_ends.push_back(i);
    p.ops.push_back({0, WorkKind::kDense, bytes, {}});
  }
  return p;
}

// `count` steps, each an op of the second worker after dense work of the first, which itself follows the op of the step
// before. If the first worker has work during the op, that is the second op of the step.
Pipeline behind_dense(WorkKind kind, double bytes, double dense_bytes, double concurrent_bytes, int count) {
  Pipeline p;
  for (int i = 0; i < count; ++i) {
    const int dense = append_op(p, 0, WorkKind::kDense, dense_bytes, {});
    if (!p.step_ends.empty()) p.ops.back().after = {p.step_ends.back()};
    if (concurrent_bytes > 0) append_op(p, 0, WorkKind::kDense, concurrent_bytes, {});
    p.step_ends.push_back(append_op(p, 1, kind, bytes, {dense}));
  }
  return p;
}

Pipeline ping_pong() {
  constexpr int kTurns = 200;
  Pipeline p;
  for (int i = 0; i < kTurns; ++i) {
    p.ops.push_back({i % 2, WorkKind::kRows, 256, {}});
    if (i > 0) p.ops.back().after = {i - 1};
    p.step_ends.push_back(i);
  }
  return p;
}

// Seconds of a dense op back to back with others of the same kind; empty if there were too few undisturbed samples. The
// measurement takes equally long for ops of any size: the first millisecond after other work is slower, which is not
// part of an op in a pipeline.
std::optional<double> dense_seconds(double bytes, double all_bytes, PipelineMemory& memory) {
  const int ops = static_cast<int>(all_bytes / bytes);
  Samples samples;
  samples.add(run_pipeline(dense_alone(bytes, ops), memory), ops / 3);
  return samples.median();
}

// Dense work and hand-over that precede an op in a pipeline.
struct Surroundings {
  double dense_bytes = 0, hand_over = 0;
};

// Seconds of an op of the second worker that has waited for dense work: as in a pipeline, it finds in the caches what
// such work leaves there, not what the op before it read. Also those of the first worker's dense work during the op, if
// there is any.
struct Waited {
  std::optional<double> op, concurrent;
};
Waited waited_seconds(WorkKind kind, double bytes, const Surroundings& around, double concurrent_bytes,
                      PipelineMemory& memory) {
  constexpr int kOps = 24, kWarmup = 4;
  const PipelineRun run = run_pipeline(behind_dense(kind, bytes, around.dense_bytes, concurrent_bytes, kOps), memory);
  const std::size_t ops = concurrent_bytes > 0 ? 3 : 2;
  Samples op, concurrent;
  for (std::size_t i = kWarmup; i < kOps; ++i) {
    const double* const ends = &run.op_ends[ops * i];
    op.add(ends[ops - 1] - ends[0] - around.hand_over, run.disturbed[i]);
    if (concurrent_bytes > 0) concurrent.add(ends[1] - ends[0], run.disturbed[i]);
  }
  return {op.median(), concurrent.median()};
}

// Computes start and rate of an op from two sizes.
bool set_rate(PipelineRates& rates, WorkKind kind, double small, double large, std::optional<double> little,
              std::optional<double> much) {
  if (!little || !much || *much <= *little) return false;
  const auto k = static_cast<std::size_t>(kind);
  // An op whose small size is no slower per byte than its large one has no start.
  const double rate = (large - small) / (*much - *little);
  rates.start[k] = std::max(0.0, *little - small / rate);
  rates.bytes_per_s[k] = rates.start[k] > 0 ? rate : large / *much;
  return true;
}

// Share of their speed that an op and dense work of the same duration retain when they run together, from the time
// until both are done. The model slows both equally; if one is slowed more, it is the one that a step waits for.
std::optional<double> share_together(WorkKind kind, double bytes, const PipelineRates& rates,
                                     const Surroundings& around, PipelineMemory& memory) {
  const double alone = rates.seconds(kind, bytes);
  const double dense_bytes = alone * rates.bytes_per_s[0];
  const Waited pair = waited_seconds(kind, bytes, around, dense_bytes, memory);
  if (!pair.op || !pair.concurrent) return std::nullopt;
  return std::min(1.0, alone / std::max(*pair.op, *pair.concurrent));
}

std::optional<PipelineRates> measure_rates(PipelineMemory& memory, double scale) {
  const double small = scale * kMiB, large = 8 * small;
  PipelineRates r;
  Samples turns;
  turns.add(run_pipeline(ping_pong(), memory), 20);
  if (!turns.median()) return std::nullopt;
  r.hand_over = *turns.median();
  const double all = kLargeOps * large;
  if (!set_rate(r, WorkKind::kDense, small, large, dense_seconds(small, all, memory),
                dense_seconds(large, all, memory))) {
    return std::nullopt;
  }
  const Surroundings around{kLayerDense * small, r.hand_over};
  for (const WorkKind kind : {WorkKind::kMove, WorkKind::kRows}) {
    const auto waited = [&](double bytes) { return waited_seconds(kind, bytes, around, 0, memory).op; };
    if (!set_rate(r, kind, small, large, waited(small), waited(large))) return std::nullopt;
    const std::optional<double> share = share_together(kind, small, r, around, memory);
    if (!share) return std::nullopt;
    r.together[static_cast<std::size_t>(kind)] = *share;
  }
  return r;
}

// Step times in one round, in seconds, by pipeline. The first pipeline is the dense work alone.
struct Round {
  PipelineRates rates;
  std::vector<double> measured, predicted;
};

class Rounds {
 public:
  explicit Rounds(const std::vector<Plan>& plans) : plans_(plans), kept_(plans.size()), seen_(plans.size()) {}

  void add(PipelineMemory& memory, const PipelineTest& test) {
    ++tried_;
    Round round;
    const std::optional<PipelineRates> rates = measure_rates(memory, test.scale);
    if (!rates) return;
    round.rates = *rates;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      Samples samples;
      samples.add(run_pipeline(plans_[i].pipeline, memory), test.warmup);
      kept_[i] += samples.kept();
      seen_[i] += samples.seen();
      if (!samples.median()) return;
      round.measured.push_back(*samples.median());
      round.predicted.push_back(steady(predict_steps(plans_[i].pipeline, round.rates), test.warmup));
    }
    rounds_.push_back(std::move(round));
  }

  bool enough() const { return rounds_.size() >= kLeastRounds; }
  std::string text() const { return fmt::format("{} of {} rounds undisturbed", rounds_.size(), tried_); }
  std::string text(std::size_t plan) const {
    return fmt::format("{} of {} steps undisturbed", kept_[plan], seen_[plan]);
  }

  // Median over the rounds of what `of` returns for one.
  template <typename Of>
  double median(Of of) const {
    std::vector<double> values;
    for (const Round& round : rounds_) values.push_back(of(round));
    return quantile(values, 0.5);
  }
  // The median of the measurements, and that plus the median error of the predictions from the same round: neither
  // contains drift between rounds.
  template <typename Of>
  std::pair<double, double> compare(Of of) const {
    const double measured = median([&](const Round& r) { return of(r.measured); });
    return {measured, measured + median([&](const Round& r) { return of(r.predicted) - of(r.measured); })};
  }
  double spread(std::size_t plan) const {
    std::vector<double> values;
    for (const Round& round : rounds_) values.push_back(round.measured[plan]);
    return (quantile(values, 0.9) - quantile(values, 0.1)) / quantile(values, 0.5);
  }

 private:
  const std::vector<Plan>& plans_;
  std::vector<Round> rounds_;
  std::vector<int> kept_, seen_;  // steps by pipeline
  int tried_ = 0;
};

Case case_of(const char* what, const Plan& plan, double measured, double predicted, double budget,
             const std::string& note) {
  Case c;
  c.group = what;
  c.id = fmt::format("{}: {}, {:g} MiB", what, plan.pipeline.name, plan.moved_mib);
  c.quantity = fmt::format("{}, {:g} MiB a layer", plan.pipeline.name, plan.moved_mib);
  c.unit = "ms";
  c.expected = 1e3 * measured;
  c.predicted = 1e3 * predicted;
  c.tolerance = budget / 100;
  if (plan.moved_mib > 0) c.size = plan.moved_mib * kMiB;
  c.origin = Origin::kMeasured;
  c.rests_on = "rates of single operations, measured in the same run";
  c.note = note;
  c.source = "measured in this run";
  c.verdict = verdict_of(c, false);
  return c;
}

Budget worst(const Suite& suite, const std::string& group, double limit) {
  Budget budget{group + ", largest error", "%", limit, {}, false};
  for (const Case& c : suite.cases) {
    if (c.group != group || !relative_error(c)) continue;
    budget.value = std::max(budget.value.value_or(0), 100 * std::abs(*relative_error(c)));
  }
  return budget;
}

void add_cases(Suite& suite, const std::vector<Plan>& all, const Rounds& rounds) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string note =
        fmt::format("{}; rounds differ by {:.0f} % (10th to 90th percentile)", rounds.text(i), 100 * rounds.spread(i));
    const auto [step, predicted] = rounds.compare([i](const std::vector<double>& t) { return t[i]; });
    suite.cases.push_back(case_of("step time", all[i], step, predicted, kStepBudget, note));
    const auto [exposed, predicted_exposed] = rounds.compare([i](const std::vector<double>& t) { return t[i] - t[0]; });
    if (all[i].moved_mib == 0 || exposed < kLeastExposed * step) continue;
    suite.cases.push_back(case_of("exposed transfer", all[i], exposed, predicted_exposed, kExposedBudget, note));
  }
}

}  // namespace

Suite cpu_pipeline(const PipelineTest& test) {
  Suite suite;
  suite.name = "cpu_pipeline";
  suite.question = "How accurately is the overlap of two workers of this machine predicted?";
  suite.size_unit = "bytes moved a layer";
  const std::vector<Plan> all = plans(test);
  const auto size = static_cast<std::size_t>(test.memory_mib * kMiB);
  PipelineMemory memory(size, size);
  Rounds rounds(all);
  for (int r = 0; r < test.rounds; ++r) rounds.add(memory, test);
  if (!rounds.enough()) {
    suite.status =
        fmt::format("not judged: other programs took the cores away ({}); repeat it on an idle machine", rounds.text());
    for (std::size_t i = 0; i < all.size(); ++i) {
      suite.detail["undisturbed"][fmt::format("{}, {:g} MiB", all[i].pipeline.name, all[i].moved_mib)] = rounds.text(i);
    }
    return suite;
  }
  add_cases(suite, all, rounds);
  suite.budgets = {worst(suite, "step time", kStepBudget), worst(suite, "exposed transfer", kExposedBudget)};
  const auto of = [&rounds](auto PipelineRates::*numbers, std::size_t kind) {
    return rounds.median([=](const Round& r) { return (r.rates.*numbers)[kind]; });
  };
  suite.detail = {
      {"dense_bytes_per_s", of(&PipelineRates::bytes_per_s, 0)},
      {"move_bytes_per_s", of(&PipelineRates::bytes_per_s, 1)},
      {"rows_bytes_per_s", of(&PipelineRates::bytes_per_s, 2)},
      {"starts_s", {of(&PipelineRates::start, 0), of(&PipelineRates::start, 1), of(&PipelineRates::start, 2)}},
      {"together", {of(&PipelineRates::together, 1), of(&PipelineRates::together, 2)}},
      {"hand_over_s", rounds.median([](const Round& r) { return r.rates.hand_over; })},
      {"rounds", rounds.text()},
      {"checksum", memory.checksum()}};
  return suite;
}

}  // namespace kvcast::validate
