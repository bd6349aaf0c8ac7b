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
constexpr double kLeastExposed = 0.05;

struct Plan {
  Pipeline pipeline;
  double moved_mib = 0;
};

std::vector<Plan> plans(const PipelineTest& test) {
  const auto make = [&test](const char* name, Scheme scheme, double moved) {
    const double mib = test.scale * kMiB;
    Plan plan{make_pipeline(scheme, {6 * mib, 4 * mib, 14 * mib, moved * mib}, test.layers, test.steps), moved};
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

// Bytes a second of `kind` on the second worker and of dense work on the first, while both run: the second has more to
// do than the first, and is counted until the first ends.
double share_together(WorkKind kind, const std::array<double, kWorkKinds>& alone, PipelineMemory& memory,
                      double bytes) {
  constexpr int kOps = 12;
  Pipeline p;
  const double second = bytes * alone[static_cast<std::size_t>(kind)] / alone[0];  // about as long as the dense op
  for (int i = 0; i < kOps; ++i) p.ops.push_back({0, WorkKind::kDense, bytes, {}});
  for (int i = 0; i < 3 * kOps; ++i) p.ops.push_back({1, kind, second, {}});
  p.step_ends = {kOps - 1};
  std::vector<double> ends;
  const double seconds = run_pipeline(p, memory, &ends).front();
  double done = 0;
  for (int i = 0; i < 3 * kOps; ++i) {
    if (ends[static_cast<std::size_t>(kOps + i)] <= seconds) done = i + 1;
  }
  const double dense_share = kOps * bytes / seconds / alone[0];
  const double other_share = (done + 0.5) * second / seconds / alone[static_cast<std::size_t>(kind)];
  return std::min(1.0, (dense_share + other_share) / 2);
}

double hand_over(PipelineMemory& memory) {
  constexpr int kTurns = 200;
  Pipeline p;
  for (int i = 0; i < kTurns; ++i) {
    p.ops.push_back({i % 2, WorkKind::kRows, 256, {}});
    if (i > 0) p.ops.back().after = {i - 1};
  }
  p.step_ends = {kTurns - 1};
  return run_pipeline(p, memory).front() / kTurns;
}

PipelineRates measure_rates(PipelineMemory& memory, double bytes) {
  PipelineRates rates;
  for (int k = 0; k < kWorkKinds; ++k) {
    const std::vector<double> steps = run_pipeline(repeated(static_cast<WorkKind>(k), bytes, 10), memory);
    rates.bytes_per_s[static_cast<std::size_t>(k)] = bytes / steady(steps, 2);
  }
  for (int k = 0; k < kWorkKinds; ++k) {
    rates.together[static_cast<std::size_t>(k)] =
        share_together(static_cast<WorkKind>(k), rates.bytes_per_s, memory, bytes);
  }
  rates.hand_over = hand_over(memory);
  return rates;
}

PipelineRates medians(const std::vector<PipelineRates>& all) {
  const auto median = [&all](const auto& of) {
    std::vector<double> values;
    for (const PipelineRates& r : all) values.push_back(of(r));
    return quantile(values, 0.5);
  };
  PipelineRates out;
  for (std::size_t k = 0; k < kWorkKinds; ++k) {
    out.bytes_per_s[k] = median([k](const PipelineRates& r) { return r.bytes_per_s[k]; });
    out.together[k] = median([k](const PipelineRates& r) { return r.together[k]; });
  }
  out.hand_over = median([](const PipelineRates& r) { return r.hand_over; });
  return out;
}

struct Outcome {
  double measured = 0, spread = 0, predicted = 0;
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

}  // namespace

Suite cpu_pipeline(const PipelineTest& test) {
  Suite suite;
  suite.name = "cpu_pipeline";
  suite.question = "Does the engine foretell how two workers of this machine overlap?";
  suite.size_unit = "bytes moved a layer";
  const std::vector<Plan> all = plans(test);
  PipelineMemory memory(static_cast<std::size_t>(test.scale * 96 * kMiB) + (1 << 20),
                        static_cast<std::size_t>(test.scale * 256 * kMiB) + (1 << 20));
  std::vector<PipelineRates> rounds;
  std::vector<std::vector<double>> seconds(all.size());
  for (int r = 0; r < test.rounds; ++r) {
    rounds.push_back(measure_rates(memory, 8 * test.scale * kMiB));
    for (std::size_t i = 0; i < all.size(); ++i) {
      seconds[i].push_back(steady(run_pipeline(all[i].pipeline, memory), test.warmup));
    }
  }
  const PipelineRates rates = medians(rounds);
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double median = quantile(seconds[i], 0.5);
    const double spread = (quantile(seconds[i], 0.9) - quantile(seconds[i], 0.1)) / median;
    outcomes.push_back({median, spread, steady(predict_steps(all[i].pipeline, rates), test.warmup)});
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Outcome& o = outcomes[i];
    const std::string note = fmt::format("rounds differ by {:.0f} % (10th to 90th percentile)", 100 * o.spread);
    suite.cases.push_back(case_of("step time", all[i], o.measured, o.predicted, kStepBudget, note));
    const double exposed = o.measured - outcomes[0].measured;
    if (all[i].moved_mib == 0 || exposed < kLeastExposed * o.measured) continue;
    suite.cases.push_back(
        case_of("exposed transfer", all[i], exposed, o.predicted - outcomes[0].predicted, kExposedBudget, note));
  }
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
