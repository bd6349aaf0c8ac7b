// Method. Each round measures the rate of every kind of work alone and beside dense work, the time of a hand-over, and
// every pipeline once, so that what drifts (clocks, other users of the machine) drifts for both sides. Rates come from
// runs of one kind of work; no pipeline is used for them, so that all pipelines are held out.
#include "validate/cpu_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantile.hpp"

namespace kvcast::validate {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kStepBudget = 10, kExposedBudget = 15;  // per cent
// A transfer that is hidden but for this share of the step has no exposed time that could be compared.
constexpr double kLeastExposed = 0.1;
// Undisturbed steps without which a median means nothing.
constexpr std::size_t kLeastSamples = 9;

struct Plan {
  Pipeline pipeline;
  double moved_mib = 0;  // a layer
};

std::vector<Plan> plans(const PipelineTest& test) {
  const auto make = [&test](const char* name, Scheme scheme, double moved) {
    const double mib = test.scale * kMiB;
    Plan plan{make_pipeline(scheme, {6 * mib, 4 * mib, 14 * mib, moved * mib}, test.layers, test.steps),
              moved * test.scale};
    plan.pipeline.name = name;
    return plan;
  };
  return {make("dense alone", Scheme::kAlone, 0),
          make("FreeKV, speculative", Scheme::kSpeculative, 1),
          make("FreeKV, speculative", Scheme::kSpeculative, 4),
          make("FreeKV, speculative", Scheme::kSpeculative, 12),
          make("FreeKV, blocking recall", Scheme::kBlocking, 1),
          make("FreeKV, blocking recall", Scheme::kBlocking, 4),
          make("FreeKV, blocking recall", Scheme::kBlocking, 12),
          make("CTkvr, attention on the CPU", Scheme::kBeside, 1),
          make("CTkvr, attention on the CPU", Scheme::kBeside, 3),
          make("CTkvr, attention on the CPU", Scheme::kBeside, 8)};
}

// Undisturbed steps behind the warm-up, over several runs.
class Samples {
 public:
  void add(const PipelineRun& run, int warmup) {
    for (std::size_t i = static_cast<std::size_t>(warmup); i < run.steps.size(); ++i) {
      ++seen_;
      if (!run.disturbed[i]) kept_.push_back(run.steps[i]);
    }
  }
  bool enough() const { return kept_.size() >= kLeastSamples; }
  double median() const { return quantile(kept_, 0.5); }
  double spread() const { return (quantile(kept_, 0.9) - quantile(kept_, 0.1)) / median(); }
  std::string text() const { return fmt::format("{} of {} steps undisturbed", kept_.size(), seen_); }

 private:
  std::vector<double> kept_;
  int seen_ = 0;
};

double steady(const std::vector<double>& steps, int warmup) {
  return quantile(std::span(steps).subspan(static_cast<std::size_t>(warmup)), 0.5);
}

// `count` ops of one kind on a worker, each a step.
Pipeline repeated(WorkKind kind, double bytes, int count) {
  Pipeline p;
  for (int i = 0; i < count; ++i) {
    p.step_ends.push_back(static_cast<int>(p.ops.size()));
    p.ops.push_back({0, kind, bytes, {}});
  }
  return p;
}

// Seconds of a dense step with `kind` on the other worker all the while: the second has more to do than the first.
// Adds to `dense` the steps of the first, and to `other` the times of the second's ops that ended before the first did.
void run_together(WorkKind kind, double bytes, double other_bytes, PipelineMemory& memory, Samples& dense,
                  std::vector<double>& other) {
  constexpr int kOps = 12;
  Pipeline p;
  for (int i = 0; i < 3 * kOps; ++i) p.ops.push_back({1, kind, other_bytes, {}});
  for (int i = 0; i < kOps; ++i) {
    p.step_ends.push_back(static_cast<int>(p.ops.size()));
    p.ops.push_back({0, WorkKind::kDense, bytes, {}});
  }
  const PipelineRun run = run_pipeline(p, memory);
  dense.add(run, 2);
  const double end = run.op_ends.back();
  for (int i = 1; i < 3 * kOps && run.op_ends[static_cast<std::size_t>(i)] <= end; ++i) {
    other.push_back(run.op_ends[static_cast<std::size_t>(i)] - run.op_ends[static_cast<std::size_t>(i) - 1]);
  }
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

// Collects over rounds, then gives the rates.
class RateMeter {
 public:
  RateMeter(PipelineMemory& memory, double bytes) : memory_(memory), bytes_(bytes) {}

  void round() {
    for (std::size_t k = 0; k < kWorkKinds; ++k) {
      alone_[k].add(run_pipeline(repeated(static_cast<WorkKind>(k), bytes_, 12), memory_), 2);
      if (!alone_[k].enough() || !alone_[0].enough()) continue;
      // About as long as the dense op.
      const double other_bytes = bytes_ * alone_[0].median() / alone_[k].median();
      std::vector<double> seconds;
      run_together(static_cast<WorkKind>(k), bytes_, other_bytes, memory_, dense_beside_[k], seconds);
      for (const double s : seconds) beside_[k].push_back(s / other_bytes);
    }
    turns_.add(run_pipeline(ping_pong(), memory_), 20);
  }

  bool enough() const {
    bool all = turns_.enough();
    for (std::size_t k = 0; k < kWorkKinds; ++k) {
      all = all && alone_[k].enough() && dense_beside_[k].enough() && beside_[k].size() >= kLeastSamples;
    }
    return all;
  }

  std::string text() const {
    return fmt::format("Rates of dense work, moves and rows: {}, {}, {}; hand-over: {}", alone_[0].text(),
                       alone_[1].text(), alone_[2].text(), turns_.text());
  }

  PipelineRates rates() const {
    PipelineRates r;
    for (std::size_t k = 0; k < kWorkKinds; ++k) {
      r.bytes_per_s[k] = bytes_ / alone_[k].median();
      const double dense = alone_[0].median() / dense_beside_[k].median();
      const double other = 1 / (quantile(beside_[k], 0.5) * r.bytes_per_s[k]);
      r.together[k] = std::min(1.0, (dense + other) / 2);
    }
    r.hand_over = turns_.median();
    return r;
  }

 private:
  PipelineMemory& memory_;
  double bytes_;
  Samples alone_[kWorkKinds], dense_beside_[kWorkKinds], turns_;
  std::vector<double> beside_[kWorkKinds];  // seconds a byte of the other kind
};

struct Outcome {
  double measured = 0, predicted = 0;
  std::string note;
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
  c.rests_on = "rates of single kinds of work, measured in the same run";
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

void add_cases(Suite& suite, const std::vector<Plan>& all, const std::vector<Outcome>& outcomes) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Outcome& o = outcomes[i];
    suite.cases.push_back(case_of("step time", all[i], o.measured, o.predicted, kStepBudget, o.note));
    const double exposed = o.measured - outcomes[0].measured;
    if (all[i].moved_mib == 0 || exposed < kLeastExposed * o.measured) continue;
    suite.cases.push_back(
        case_of("exposed transfer", all[i], exposed, o.predicted - outcomes[0].predicted, kExposedBudget, o.note));
  }
}

}  // namespace

Suite cpu_pipeline(const PipelineTest& test) {
  Suite suite;
  suite.name = "cpu_pipeline";
  suite.question = "Does the engine foretell how two workers of this machine overlap?";
  suite.size_unit = "bytes moved a layer";
  const std::vector<Plan> all = plans(test);
  const auto size = static_cast<std::size_t>(test.memory_mib * kMiB);
  PipelineMemory memory(size, size);
  RateMeter meter(memory, 8 * test.scale * kMiB);
  std::vector<Samples> samples(all.size());
  for (int r = 0; r < test.rounds; ++r) {
    meter.round();
    for (std::size_t i = 0; i < all.size(); ++i) samples[i].add(run_pipeline(all[i].pipeline, memory), test.warmup);
  }
  const bool quiet =
      meter.enough() && std::all_of(samples.begin(), samples.end(), [](const Samples& s) { return s.enough(); });
  if (!quiet) {
    suite.status = "not judged: other programs took the cores away; repeat it on an idle machine. " + meter.text();
    for (std::size_t i = 0; i < all.size(); ++i) {
      suite.status += fmt::format("; {}, {:g} MiB: {}", all[i].pipeline.name, all[i].moved_mib, samples[i].text());
    }
    return suite;
  }
  const PipelineRates rates = meter.rates();
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    outcomes.push_back({samples[i].median(), steady(predict_steps(all[i].pipeline, rates), test.warmup),
                        fmt::format("{}; they differ by {:.0f} % (10th to 90th percentile)", samples[i].text(),
                                    100 * samples[i].spread())});
  }
  add_cases(suite, all, outcomes);
  suite.budgets = {worst(suite, "step time", kStepBudget), worst(suite, "exposed transfer", kExposedBudget)};
  suite.detail = {{"dense_bytes_per_s", rates.bytes_per_s[0]},
                  {"move_bytes_per_s", rates.bytes_per_s[1]},
                  {"rows_bytes_per_s", rates.bytes_per_s[2]},
                  {"together", rates.together},
                  {"hand_over_s", rates.hand_over},
                  {"rounds", test.rounds},
                  {"checksum", memory.checksum()}};
  return suite;
}

Suite gpu_pipeline() {
  Suite suite;
  suite.name = "gpu_pipeline";
  suite.question = "Does the simulator foretell a decode layer's pipeline of real kernels and streams?";
  suite.status =
      "unmeasured: no machine with a GPU has run it; it takes part in no average. The kernels that it needs are "
      "measured "
      "one by one by kvcast-kernels (kernels/README.md)";
  return suite;
}

}  // namespace kvcast::validate
