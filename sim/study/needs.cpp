// A trace holds all of its layers in single precision with the scores of its decode steps. A replay reads them once per
// query. A simulation holds every operation of its prefill and decode windows.
#include "study/needs.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/units.hpp"
#include "replay/replay.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::study {
namespace {

// Measured on one core of a server CPU of 2019 with AVX2; others differ by less than a factor of two.
constexpr double kProductsPerSecond = 3e10;  // multiply-adds
constexpr double kWeightsPerSecond = 3e8;    // softmax over the products, and its sum
constexpr double kNumbersPerSecond = 6e7;    // of a synthetic trace
constexpr double kOpsPerSecond = 1e6;        // lowered, timed, and timed again under shifted costs
// Bytes of an operation: as lowered, as recorded, and its starts and finishes under the shifts of its costs.
constexpr double kBytesPerOp = 200;
// Most operations that a layer has, over all policies and frameworks; in eager frameworks each kernel has two.
constexpr double kOpsPerLayer = 30;
// A service: passes of a table, queues that are simulated, and their cost on one core of 2019.
constexpr double kTablePasses = 1000, kQueueRuns = 9, kSecondsPerRequest = 2e-5, kSecondsPerToken = 1e-8;
constexpr double kBytesPerRequest = 200;
constexpr double kMatchReplays = 40;  // that find a budget: twice the logarithm of the range

struct Part {
  double bytes = 0, seconds = 0;
  std::string what;
};

double real(std::int64_t n) { return static_cast<double>(n); }

// A synthetic trace. Traces in files are mapped; they are no part of a request.
Part needs_of_trace(const config::Run& run, const config::TraceChoice& choice) {
  const config::Model& m = run.model;
  const double positions = real(lengths_of(run, choice).prompt_tokens) + choice.steps;
  const double window = choice.window > 0 || !choice.file.empty()
                            ? choice.window
                            : trace::read_recipe(trace::find_recipe(choice.recipe, choice.where)).window;
  const double d = m.head_dim, rows = m.n_q_heads * (window + choice.steps) * d;
  const double pairs = 2 * m.n_kv_heads * positions * d;
  const double copies = m.cache == config::Precision::kBf16 ? 1 : 2;
  const double scores = static_cast<double>(m.n_q_heads) * choice.steps * positions;
  Part part;
  part.bytes = choice.layers * sizeof(float) * (copies * (pairs + rows + scores) + scores / 4);
  part.seconds = choice.layers * ((pairs + rows) / kNumbersPerSecond +
                                  copies * scores * (2 * d / kProductsPerSecond + 1 / kWeightsPerSecond));
  part.what =
      fmt::format("a trace of {} layers, {} tokens and {} queries", choice.layers, positions, window + choice.steps);
  return part;
}

Part needs_of_replay(const config::Run& run, const config::TraceChoice& choice, double window) {
  const config::Model& m = run.model;
  const double prompt = real(lengths_of(run, choice).prompt_tokens), d = m.head_dim;
  Part part;
  part.bytes = m.n_q_heads * prompt * (sizeof(double) + sizeof(float)) + 512 * prompt * sizeof(float) +
               static_cast<double>(choice.layers) * choice.steps * m.n_q_heads * sizeof(policy::HeadCounts);
  // The rows of a prompt see half of it on average.
  const double pairs = choice.layers * m.n_q_heads * prompt * (std::min(window, prompt) / 2 + choice.steps);
  part.seconds = pairs * (d / kProductsPerSecond + 1 / kWeightsPerSecond);
  part.what = fmt::format("a replay of {} over {} queries and {} tokens", run.policy.name,
                          std::min(window, prompt) + choice.steps, prompt);
  return part;
}

// Chunks in which a prompt is prefilled: blocks of the policy, each cut by the workload's own chunks.
double chunks_of(std::int64_t prompt, std::int64_t block, std::int64_t chunk) {
  if (block <= 0 || block > prompt) block = prompt;
  if (chunk <= 0 || chunk > block) chunk = block;
  return std::ceil(real(prompt) / real(block)) * std::ceil(real(block) / real(chunk));
}

// The table of passes, and the queue: as it is, at four ends of intervals, and with other draws.
Part needs_of_service(const Task& task) {
  const config::Run& run = task.prepared.run;
  const RequestLengths& lengths = *task.prepared.requests;
  const double tokens = lengths.mean_prompt + lengths.mean_outputs;
  const double requests = kQueueRuns * real(lengths.requests);
  Part part;
  part.seconds = kTablePasses * kOpsPerLayer * run.model.layers / kOpsPerSecond +
                 requests * (kSecondsPerRequest + tokens * kSecondsPerToken);
  part.bytes = kTablePasses * kBytesPerOp + real(lengths.requests) * kBytesPerRequest;
  part.what = fmt::format("{} requests, {} times, and a table of passes", lengths.requests, kQueueRuns);
  return part;
}

Part needs_of_simulation(const Task& task) {
  const config::Run& run = task.prepared.run;
  const config::Workload& w = run.workload;
  const config::Framework& f = run.framework;
  const std::int64_t block = task.prepared.made->prompt_blocks(run.model, 0, lengths_of(run)).tokens;
  const double groups = w.prefill_batch > 0 ? std::ceil(static_cast<double>(w.batch) / w.prefill_batch) : 1;
  const double chunks = groups * chunks_of(w.prompt_tokens, block, w.prefill_chunk);
  const double contexts = std::min(real(f.sampled_contexts), real(w.decode_tokens));
  const double steps = contexts * (f.warmup_steps + 2) + f.measured_steps;
  const double calls = f.launch == config::Framework::Launch::kEager ? 2 : 1;
  const double ops = kOpsPerLayer * calls * run.model.layers * (chunks + steps);
  Part part;
  part.bytes = ops * kBytesPerOp + 4.0 * w.batch * run.model.n_q_heads * sizeof(policy::HeadCounts);
  part.seconds = ops / kOpsPerSecond;
  part.what = fmt::format("the operations of {} prefill chunks and {} decode steps", chunks, steps);
  return part;
}

// Sums and largest of the parts of one kind.
struct Kind {
  double seconds = 0;
  Part largest;
  std::size_t count = 0;
  void add(const Part& part, double times = 1) {
    seconds += times * part.seconds;
    if (part.bytes + part.seconds >= largest.bytes + largest.seconds) largest = part;
    ++count;
  }
  double bytes(int threads) const {
    return largest.bytes * std::min(static_cast<double>(count), static_cast<double>(threads));
  }
};

}  // namespace

Needs needs_of(const Study& plan, int threads) {
  Kind traces, replays, simulations;
  std::set<std::string> seen;
  for (const Task& task : plan.tasks()) {
    const config::Run& run = task.prepared.run;
    const double times = task.is_solved() ? 1 : kMatchReplays;
    for (std::size_t i = 0; i < run.traces.size(); ++i) {
      const TraceKeys& keys = task.prepared.traces[i];
      const config::TraceChoice& choice = run.traces[i];
      if (seen.insert(keys.trace).second) traces.add(needs_of_trace(run, choice));
      if (seen.insert(keys.replay).second) replays.add(needs_of_replay(run, choice, choice.window), times);
    }
    simulations.add(needs_of_simulation(task), static_cast<double>(run.traces.size()));
    if (run.traffic) simulations.add(needs_of_service(task));
  }
  Needs needs;
  const std::pair<double, const Kind*> bytes[] = {
      {traces.largest.bytes, &traces}, {replays.bytes(threads), &replays}, {simulations.bytes(threads), &simulations}};
  for (const auto& [amount, kind] : bytes) {
    needs.bytes += amount;
    needs.seconds += kind->seconds;
  }
  needs.most_bytes = std::ranges::max_element(bytes, {}, [](const auto& b) { return b.first; })->second->largest.what;
  needs.most_seconds =
      std::ranges::max_element(bytes, {}, [](const auto& b) { return b.second->seconds; })->second->largest.what;
  return needs;
}

void check_budget(const Needs& needs, const NeedLimits& budget, double spent) {
  if (budget.bytes > 0 && needs.bytes > budget.bytes) {
    throw OverBudget(fmt::format("this takes about {} of memory, most of it for {}; a request may take {}",
                                 format_quantity(needs.bytes, Dimension::kBytes), needs.most_bytes,
                                 format_quantity(budget.bytes, Dimension::kBytes)));
  }
  if (budget.seconds > 0 && spent + needs.seconds > budget.seconds) {
    throw OverBudget(fmt::format("this takes about {} of one core{}, most of it for {}; a request may take {}",
                                 format_quantity(spent + needs.seconds, Dimension::kSeconds),
                                 spent > 0 ? " with what was done before" : "", needs.most_seconds,
                                 format_quantity(budget.seconds, Dimension::kSeconds)));
  }
}

}  // namespace kvcast::study
