// kvcast explain CONFIG --step t --layer l: one decode step of one layer as text: the selection, the operations that
// follow from it in all sequences of the batch, and the cost of each with its terms.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "app/commands.hpp"
#include "app/settings.hpp"
#include "base/parallel.hpp"
#include "hardware/cost_model.hpp"
#include "lower/decode.hpp"
#include "replay/replay.hpp"
#include "simulate/experiment.hpp"
#include "study/match.hpp"
#include "study/prepare.hpp"
#include "study/study.hpp"

namespace kvcast::app {
namespace {

struct ExplainOptions {
  std::string config;
  std::vector<std::string> settings;
  int step = 0, layer = 0;
};

// "0-63, 96-127, 500 (180 tokens)", cut off after some runs.
std::string positions_text(const std::vector<std::int32_t>& positions) {
  constexpr std::size_t kRuns = 12;
  std::vector<std::string> runs;
  std::size_t count = 0;
  for (std::size_t i = 0; i < positions.size();) {
    std::size_t j = i;
    while (j + 1 < positions.size() && positions[j + 1] == positions[j] + 1) ++j;
    if (++count <= kRuns) {
      runs.push_back(i == j ? fmt::format("{}", positions[i]) : fmt::format("{}-{}", positions[i], positions[j]));
    }
    i = j + 1;
  }
  if (count > kRuns) runs.push_back(fmt::format("... in {} runs", count));
  return fmt::format("{} ({} tokens)", fmt::join(runs, ", "), positions.size());
}

void print_head(const policy::HeadSelection& head, bool per_query_head, std::size_t number) {
  fmt::print("  {} head {}: attends to {}\n", per_query_head ? "query" : "KV", number, positions_text(head.attended));
  const policy::HeadCounts& c = head.counts;
  if (!head.fetched.empty()) {
    fmt::print("    fetches {} in {} piece{}\n", positions_text(head.fetched), c.fetched_runs,
               c.fetched_runs == 1 ? "" : "s");
  }
  if (!head.evicted.empty()) fmt::print("    evicts {}\n", positions_text(head.evicted));
  if (c.scored > 0)
    fmt::print("    scores {} index entr{}{}\n", c.scored, c.scored == 1 ? "y" : "ies",
               c.candidates > 0 ? fmt::format(", reranks {}", c.candidates) : "");
  if (c.corrected) fmt::print("    corrected: the step waited for this head's own selection\n");
}

const replay::StepSelection& find_selection(const replay::ReplayResult& replayed, const ExplainOptions& options,
                                            int captured) {
  for (const replay::StepSelection& s : replayed.selections) {
    if (s.layer == captured && s.step == options.step) return s;
  }
  throw UserError({}, fmt::format("--step {}: the trace has steps 0 to {}", options.step, replayed.decode_steps - 1));
}

// The operations of consecutive decode steps, the last of which is shown. The number of an operation is its index.
struct ShownSteps {
  std::vector<graph::Op> ops;
  std::size_t first = 0;  // operation of the last step
  int layer = 0;          // shown of it

  bool shows(std::size_t id) const { return id >= first && ops[id].layer == layer && !is_marker(id); }
  bool is_marker(std::size_t id) const { return ops[id].kind == graph::Kind::kMarker; }
};

// Lowers the step that is shown and the one before it, whose operations it may wait for.
ShownSteps lower_steps(const lower::DecodeSetting& setting, const ExplainOptions& options) {
  const int before = std::min(options.step, 1);
  const std::int64_t context = setting.run->workload.prompt_tokens + options.step - before + 1;
  lower::DecodeWindow window(setting, context, before + 1);
  ShownSteps steps;
  steps.layer = setting.run->model.attending_layer(options.layer);
  for (std::vector<graph::Op> block; window.next_block(block);) {
    steps.first = steps.ops.size();
    steps.ops.insert(steps.ops.end(), block.begin(), block.end());
  }
  return steps;
}

// The last operation of each lane that a marker waits for: lanes keep their order, so the earlier ones are over then.
using AwaitedOps = std::map<graph::Lane, std::size_t>;

// Adds what an operation on this lane waits for if it waits for `id`. What a marker waits for, and what comes before
// the marker on its own lane, replace the marker.
void add_awaited(const ShownSteps& steps, std::size_t id, graph::Lane lane, AwaitedOps& awaited) {
  const graph::Op& op = steps.ops[id];
  if (!steps.is_marker(id)) {
    std::size_t& last = awaited[op.lane];
    last = std::max(last, id);
    return;
  }
  for (const graph::OpId earlier : op.after) add_awaited(steps, static_cast<std::size_t>(earlier), lane, awaited);
  if (op.lane == lane) return;  // whose order the waiting operation keeps in any case
  for (std::size_t i = id; i-- > 0;) {
    if (steps.ops[i].lane == op.lane) return add_awaited(steps, i, lane, awaited);
  }
}

// "#12" for an operation that is shown, "#3 (norm, layer 0)" for another.
std::string reference(const ShownSteps& steps, std::size_t id) {
  if (steps.shows(id)) return fmt::format("#{}", id);
  const graph::Op& op = steps.ops[id];
  return fmt::format("#{} ({}{}{})", id, op.label, op.layer < 0 ? "" : fmt::format(", layer {}", op.layer),
                     id < steps.first ? ", step before" : "");
}

void print_op(const ShownSteps& steps, std::size_t id, const hardware::CostModel& costs) {
  const graph::Op& op = steps.ops[id];
  std::set<std::size_t> ids;
  AwaitedOps behind_markers;
  for (const graph::OpId after : op.after) {
    const auto earlier = static_cast<std::size_t>(after);
    if (steps.is_marker(earlier)) {
      add_awaited(steps, earlier, op.lane, behind_markers);
    } else {
      ids.insert(earlier);
    }
  }
  for (const auto& [lane, last] : behind_markers) ids.insert(last);
  std::vector<std::string> after;
  for (const std::size_t earlier : ids) after.push_back(reference(steps, earlier));
  fmt::print("\n#{} {} ({}) on {}{}{}\n{}", id, op.label, graph::kind_name(op.kind), graph::lane_name(op.lane),
             after.empty() ? "" : ", after ", fmt::join(after, ", "), costs.explain(op));
}

// Says which step, sequences and GPU the operations are those of, and whether they follow from the selection.
void print_ops_heading(const lower::DecodeSetting& setting, const replay::ReplayResult& replayed,
                       const replay::StepSelection& selection, const ExplainOptions& options) {
  const config::Run& run = *setting.run;
  const int rows = setting.step_batch(), gpus = run.deployment.head_ranks();
  fmt::print("\nOperations of layer {} in step {} for {}{}", options.layer, options.step,
             rows < run.workload.batch
                 ? fmt::format("a micro-batch of {} of the {} sequences", rows, run.workload.batch)
                 : fmt::format("{} sequence{}", rows, rows == 1 ? "" : "s"),
             run.model.slides(options.layer)         ? "; this layer attends to a sliding window, whatever is selected"
             : options.layer < replayed.dense_layers ? "; the policy leaves this layer uncompressed"
             : rows == 1                             ? " with the counts of this selection"
                                                     : ", each with the counts of this selection");
  if (gpus > 1) {
    const std::size_t heads = selection.selection.heads.size();
    fmt::print("\non one of the {} GPUs that share a layer: the one with the most work, for {} of the {} {} heads",
               gpus, std::max<std::size_t>(1, heads / static_cast<std::size_t>(gpus)), heads,
               selection.selection.per_query_head ? "query" : "KV");
  }
  fmt::print("\n");
}

// Prepares the run, with its budget solved if it has a `match:`.
study::Prepared prepared_run(config::Node config) {
  study::Study plan({study::Point{std::move(config), {}, {}}});
  study::StudyOptions study;
  study.threads = hardware_threads();
  plan.solve(study);
  const study::Task& task = plan.tasks().front();
  if (!task.refused.empty()) throw UserError(task.refused);
  return task.prepared;
}

int run(const ExplainOptions& options) {
  const study::Prepared prepared = prepared_run(load_with_settings(options.config, options.settings));
  if (!prepared.run.workload.prompts.empty()) {
    throw UserError(where_is(prepared.run.source, "workload.prompt_tokens"),
                    "explain shows a step of sequences of one length: give one prompt length");
  }
  const int layers = prepared.run.model.attending_layers();
  if (options.layer < 0 || options.layer >= layers) {
    throw UserError(
        {}, fmt::format("--layer {}: {} has layers 0 to {}", options.layer, prepared.run.model.name, layers - 1));
  }
  const auto trace = study::make_trace(prepared.run, prepared.run.traces.front());
  const auto policy = study::make_policy(prepared);
  const replay::ReplayResult replayed =
      replay::replay(*trace, *policy, {hardware_threads(), true}, prepared.run.model.cache);
  const simulate::ExperimentInput input{&prepared.run, policy.get(), &replayed};
  // Every sequence of the batch has the counts of this step, after those of the step before.
  replay::Draw counts =
      replay::Draw::in_order(replayed, config::attending(prepared.run.model), simulate::draw_counts(input).batch(),
                             std::max(0, std::min(options.step, replayed.decode_steps) - 1));
  const lower::DecodeSetting setting = simulate::decode_setting(input, counts);
  const int captured = counts.captured_layer(options.layer);
  const replay::StepSelection& selection = find_selection(replayed, options, captured);
  fmt::print("{}\n{}\n\n", prepared.policy->name, prepared.policy->sentence);
  if (prepared.matched) fmt::print("{}\n", study::text_of(*prepared.matched, prepared.policy->name));
  if (prepared.run.traces.size() > 1) {
    fmt::print("Trace: {}, the first of {}\n", study::trace_name(prepared.run.traces.front()),
               prepared.run.traces.size());
  }
  fmt::print("Selection at step {} (query at position {}), captured layer {}{}\n", options.step,
             replayed.prompt_tokens + options.step, captured,
             captured == options.layer ? "" : fmt::format(", the nearest to layer {}", options.layer));
  const auto& heads = selection.selection.heads;
  for (std::size_t h = 0; h < heads.size(); ++h) print_head(heads[h], selection.selection.per_query_head, h);
  print_ops_heading(setting, replayed, selection, options);
  const ShownSteps steps = lower_steps(setting, options);
  const hardware::CostModel costs(prepared.run.hardware, prepared.run.framework);
  for (std::size_t id = steps.first; id < steps.ops.size(); ++id) {
    if (steps.shows(id)) print_op(steps, id, costs);
  }
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("explain", "show one decode step of one layer: selection, operations, times");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("CONFIG", options->config, "YAML of a run")->required();
  command->add_option("--step", options->step, "captured decode step to show, counted from 0")
      ->check(CLI::Range(0, 1'000'000'000));
  command
      ->add_option("--layer", options->layer,
                   "layer of the model, counted from 0; its selection is that of the nearest captured layer")
      ->check(CLI::Range(0, 1'000'000'000));
  add_settings(*command, options->settings, "change a key: policy.budget=96");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
