#include "app/run_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/service_text.hpp"
#include "base/quote.hpp"
#include "base/units.hpp"
#include "plan/findings.hpp"
#include "result/metric.hpp"
#include "study/match.hpp"

namespace kvcast::app {
namespace {

using result::Metric;
using result::Result;

std::string bytes(double value) { return format_quantity(value, Dimension::kBytes); }

void print_owners(const std::vector<result::OwnedBytes>& owners) {
  for (const result::OwnedBytes& o : owners) fmt::print("    {:<24} {}\n", o.owner, bytes(o.bytes));
}

void print_oom(const Result& r) {
  const result::OutOfMemory& oom = *r.experiment.oom;
  fmt::print("{}: in {}, {} of {} {} are in use; another {} for {} would exceed the capacity by {}\n",
             result::fit_of(r) == result::MemoryFit::kBorderline ? "Borderline, does not fit" : "Does not fit",
             oom.moment, bytes(oom.in_use), bytes(oom.capacity), oom.pool == "hbm" ? "HBM" : "pinned DRAM",
             bytes(oom.requested), oom.requested_for, bytes(oom.in_use + oom.requested - oom.capacity));
  print_owners(oom.owners);
}

// Parts by operation kind have their own table; numbers about the simulation are for --json.
bool is_listed(const Metric& metric) {
  using enum result::Basis;
  const bool by_kind = metric.field != nullptr &&
                       (metric.basis == kStepPart || metric.basis == kPrefillPart || metric.basis == kBuildPart);
  return !by_kind && metric.basis != kProgram;
}

// Words for an interval that leaves everything open.
std::string interval_text(const Metric& metric, const Interval& range) {
  constexpr double kNearly = 0.01;
  if (metric.unit == result::Unit::kShare && range.low < kNearly && range.high > 1 - kNearly) return "says nothing";
  return fmt::format("{} to {}", result::format_value(metric, range.low), result::format_value(metric, range.high));
}

void print_metrics(const Result& r) {
  fmt::print("{:<46} {:>16}  {:<26} {}\n", "", "", "80 % interval", "origin");
  for (const Metric& metric : result::all_metrics()) {
    const auto number = is_listed(metric) ? result::value(r, metric) : std::nullopt;
    if (!number || (r.experiment.oom && *number == 0)) continue;  // a peak that was never reached
    const auto range = result::interval(r, metric);
    const std::string between = range && range->low < range->high ? interval_text(metric, *range) : "";
    fmt::print("{:<46} {:>16}  {:<26} {}\n", metric.label, result::format_value(metric, *number), between,
               origin_name(result::origin(r, metric)));
  }
}

void print_breakdown(const char* title, const metrics::Attribution& time) {
  fmt::print("\n{:<14} {:>12} {:>12} {:>17}\n", title, "exposed", "hidden", "on critical path");
  const std::array<double, graph::kKindCount> path = metrics::by_kind(time.path);
  for (int k = 0; k < graph::kKindCount; ++k) {
    const auto i = static_cast<std::size_t>(k);
    if (time.exposed[i] == 0 && time.hidden[i] == 0) continue;
    fmt::print("  {:<12} {:>12} {:>12} {:>17}\n", graph::kind_name(static_cast<graph::Kind>(k)),
               format_seconds(time.exposed[i]), format_seconds(time.hidden[i]), format_seconds(path[i]));
  }
  if (time.idle > 0) fmt::print("  {:<12} {:>12}\n", "idle", format_seconds(time.idle));
  fmt::print("Bottleneck on the critical path: {}\n", result::bottleneck(time));
}

// The uncertain costs that may change a step most; these are worth measuring first.
void print_sensitivities(std::vector<result::Effect> effects, const std::string& trace_effect) {
  constexpr std::size_t kMost = 4;
  std::erase_if(effects, [](const auto& e) { return !plan::is_significant(e.longer.step, e.shorter.step); });
  effects = result::by_reach(std::move(effects));
  if (effects.empty()) return;
  fmt::print("\nA step is most sensitive to\n");
  for (std::size_t i = 0; i < std::min(kMost, effects.size()); ++i) {
    const result::Effect& e = effects[i];
    const std::string name = e.source == result::kTraceSample ? trace_effect : plan::name_of(e.keys);
    fmt::print("  {:<52} {} to {} %\n", name, format_change(100 * (e.shorter.step - 1), 0),
               format_change(100 * (e.longer.step - 1), 0));
  }
}

// Prints the tasks that pull the mean down.
void print_benchmark(const Result& r) {
  constexpr std::size_t kLowest = 3;
  if (!r.benchmark_refused.empty()) {
    fmt::print("No score of {} is predicted: {}\n", r.subject.text("score.benchmark"), r.benchmark_refused);
  }
  if (!r.benchmark) return;
  const result::BenchmarkScore& score = *r.benchmark;
  std::vector<std::string> lowest;
  for (std::size_t i = 0; i < std::min(kLowest, score.tasks.size()); ++i) {
    const result::BenchmarkTask& task = score.tasks[i];
    lowest.push_back(fmt::format("{} {:.0f} % ({:.0f} to {:.0f})", task.task, 100 * task.share_of_full,
                                 100 * task.interval.low, 100 * task.interval.high));
  }
  fmt::print("The benchmark score is the mean over {} tasks of {}, lowest in {}.\nIt is based on {}.\n",
             score.tasks.size(), score.benchmark, fmt::join(lowest, ", "), score.origin);
}

// Prints the numbers of the machine that differ from its profile, and those that moved with them.
void print_changes(const std::vector<config::MachineChange>& changes) {
  if (changes.empty()) return;
  fmt::print("Changed numbers of the machine\n");
  for (const config::MachineChange& c : changes) {
    const std::string from = c.base.empty() ? "" : fmt::format(" (was {})", c.base);
    const std::string why = c.follows.empty() ? "" : fmt::format(", follows {}: {}", c.follows, c.rule);
    fmt::print("  hardware.{} = {}{}{}\n", c.key, c.value, from, why);
  }
  fmt::print("\n");
}

// Prints each trace of the run, and how much of it was captured.
void print_traces(const config::Run& run) {
  const char* heading = "Replayed:";
  for (const config::TraceChoice& trace : run.traces) {
    const std::string extent = trace.file.empty() ? fmt::format(", {} of {} layers, {} steps", trace.layers,
                                                                run.model.attending_layers(), trace.steps)
                                                  : "";
    const std::string length = trace.prompt_tokens > 0 ? fmt::format(", {} tokens", trace.prompt_tokens) : "";
    fmt::print("{:<9} {}{}{}\n", heading, study::trace_name(trace), extent, length);
    heading = "";
  }
  if (run.model.recurrence) {
    fmt::print(
        "{:<9} the policy acts on the {} layers that attend; {} others have a recurrence and keep {} a sequence\n", "",
        run.model.full_layers(), run.model.layers_with(config::Mixer::kRecurrence),
        format_quantity(run.model.state_bytes(), Dimension::kBytes));
  }
  if (run.model.compressed) {
    fmt::print(
        "{:<9} the model attends to compressed entries, whatever is replayed: {} bytes a token, of which {} of the "
        "index, and {} a sequence\n",
        "", std::lround(run.model.kv_bytes_per_token()), std::lround(run.model.index_bytes_per_token()),
        format_quantity(run.model.state_bytes(), Dimension::kBytes));
  }
  fmt::print("\n");
}

// Says that the replay ends before the policy begins to choose.
void print_unfilled_budget(const study::Prepared& prepared, const result::Accuracy& accuracy) {
  if (accuracy.origin != Origin::kExtrapolated) return;
  fmt::print(
      "The replay ends before the policy's budget is full, at {} tokens. Later steps are assumed to attend to\n"
      "as many tokens as the budget allows; accuracy and the transfers of a step are those of the replay.\n"
      "A run with a longer prompt shows those of later steps.\n\n",
      prepared.made->growth(study::lengths_of(prepared.run)).fill);
}

// Returns what else decides the speed of the run: "; under vllm; tensor_parallel 2".
std::string serving_text(const config::Run& run) {
  std::string text = run.framework.name.empty() ? "" : "; under " + run.framework.name;
  if (const auto& s = run.speculation) {
    text += fmt::format("; {} drafts {} tokens, {:.2f} tokens a pass", config::speculation_name(s->kind), s->tokens,
                        s->tokens_per_pass);
  }
  const config::Node* const deployment = run.source.find("deployment");
  if (deployment == nullptr) return text;
  const char* separator = "; ";
  for (const auto& [key, value] : deployment->entries()) {
    if (value.kind() != config::Node::Kind::kScalar) continue;
    text += fmt::format("{}{} {}", separator, key, value.text());
    separator = ", ";
  }
  return text;
}

std::string text_of(const Result& r, const char* name) {
  const Metric& metric = *result::find_metric(name);
  const auto value = result::value(r, metric);
  return value ? result::format_value(metric, *value) : "";
}

// The service that a request gets.
std::string service_text(const Result& r) {
  const result::Subject& s = r.subject;
  const std::string at_a_time = s.batch == 1 ? "one at a time" : fmt::format("{} at a time", s.batch);
  std::string text =
      fmt::format("{} of {} + {} tokens, {}: first token after {}, {} a token while decoding, all after {}",
                  text_of(r, "request.requests_per_s"), s.prompt_tokens, s.decode_tokens, at_a_time,
                  text_of(r, "request.ttft_s"), text_of(r, "decode.tpot_s.mean"), text_of(r, "request.latency_s"));
  if (const std::string cost = text_of(r, "request.cost_per_million_output_tokens"); !cost.empty()) {
    text += fmt::format("; {} per million output tokens, prompts included", cost);
  }
  return text;
}

std::string limits_text(const Result& r) {
  const result::Experiment& e = r.experiment;
  const double prefill = *result::prefill_share(r, *result::find_metric("request.latency_s"));
  std::string text = fmt::format(
      "prompts take {:.0f} % of the time (bound by {}), decode steps {:.0f} % (bound by {}); HBM "
      "{} of {}",
      100 * prefill, result::bottleneck(e.prefill), 100 * (1 - prefill), result::bottleneck(e.step), bytes(e.hbm.peak),
      bytes(e.hbm.capacity));
  if (r.borderline) text += ", which is borderline: other activations or another capacity would not fit";
  return text;
}

std::string certainty_text(const Result& r, const config::Run& run) {
  const Metric& rate = *result::find_metric("request.requests_per_s");
  const Interval range = result::interval(r, rate).value();
  std::string text = fmt::format("{} to {} requests/s with 80 % probability ({} costs)", format_digits(range.low, 3),
                                 format_digits(range.high, 3), origin_name(result::origin(r, rate)));
  if (r.benchmark) {
    const result::BenchmarkScore& score = *r.benchmark;
    const char* const floor = score.interval.low >= run.score.floor    ? "above"
                              : score.share_of_full >= run.score.floor ? "probably above"
                              : score.interval.high >= run.score.floor ? "probably below"
                                                                       : "below";
    const std::string between =
        score.interval.low < score.interval.high
            ? fmt::format(" ({:.1f} to {:.1f})", 100 * score.interval.low, 100 * score.interval.high)
            : "";
    text += fmt::format("; {} score {:.1f} % of full KV's{}, {} the floor of {:.3g} %", score.benchmark,
                        100 * score.share_of_full, between, floor, 100 * run.score.floor);
  } else if (!r.benchmark_refused.empty()) {
    text += fmt::format("; no score of {} is predicted for it", r.subject.text("score.benchmark"));
  } else if (!r.subject.uncompressed()) {
    text += "; no benchmark score is predicted (--set score=ruler predicts one)";
  }
  return text;
}

// The three lines that answer most questions, before the table.
void print_verdict(const Result& r, const config::Run& run) {
  if (r.service) return print_service_verdict(r);
  if (!r.has_times()) return;
  fmt::print("Serves     {}.\nLimits     {}.\nHow sure   {}.\n\n", service_text(r), limits_text(r),
             certainty_text(r, run));
}

}  // namespace

void print_result(const study::Task& task, const Result& r) {
  const config::Run& run = task.prepared.run;
  const result::Subject& s = r.subject;
  const std::string work = run.traffic ? traffic_text(*run.traffic, *task.prepared.requests)
                                       : fmt::format("{} prompt tokens, {} generated, batch {}",
                                                     s.text("workload.prompt_tokens"), s.decode_tokens, s.batch);
  fmt::print("{} on {}, {}: {}{}\n", s.policy, s.hardware, s.model, work, serving_text(run));
  if (task.prepared.matched) fmt::print("{}\n", study::text_of(*task.prepared.matched, s.policy));
  if (run.hardware.fit != config::TimesOrigin::kFitted) {
    fmt::print("{} has {}; the uncertainty of its times is that found for such GPUs (docs/cards.md)\n", s.hardware,
               config::fit_text(run.hardware));
  }
  if (const std::string note = config::unpriced_text(run); !note.empty()) fmt::print("{}\n", note);
  print_verdict(r, run);
  print_traces(run);
  print_unfilled_budget(task.prepared, r.accuracy);
  print_changes(run.hardware.changes);
  if (r.experiment.oom) print_oom(r);
  print_metrics(r);
  if (r.accuracy.task) {
    const result::TaskScore& score = *r.accuracy.task;
    const bool several = score.task.find(", ") != std::string::npos;
    fmt::print("The task score is {} {}{}.\n", several ? "the mean of" : "that of", escape_controls(score.task),
               several ? ", one text each" : ", one text");
    const std::string& unseen = task.prepared.needs.unseen;
    if (!unseen.empty()) fmt::print("It leaves out a part of the loss: {}.\n", unseen);
    if (!r.benchmark && r.benchmark_refused.empty() && score.interval.low < score.interval.high) {
      fmt::print("Few texts say little about a score; --set score=ruler predicts the mean over a benchmark.\n");
    }
  }
  if (!r.accuracy.task_refused.empty()) fmt::print("No task score is predicted: {}.\n", r.accuracy.task_refused);
  print_benchmark(r);
  if (!r.has_times()) return;
  fmt::print("\nHBM at the peak\n");
  print_owners(r.experiment.hbm.owners);
  print_breakdown("Decode step", r.experiment.step);
  print_breakdown("Prefill", r.experiment.prefill);
  print_sensitivities(r.experiment.effects, run.traces.size() > 1 ? "another text, other layers and steps"
                                                                  : "other layers and steps of the trace");
}

}  // namespace kvcast::app
