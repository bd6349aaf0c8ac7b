// kvcast explain CONFIG --step t --layer l: one decode step of one layer as text: the selection, the operations that
// follow from it, and the cost of each with its terms.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

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
  if (!head.fetched.empty()) fmt::print("    fetches {} as {} pieces\n", positions_text(head.fetched), c.fetched_runs);
  if (!head.evicted.empty()) fmt::print("    evicts {}\n", positions_text(head.evicted));
  if (c.scored > 0)
    fmt::print("    scores {} units{}\n", c.scored, c.candidates > 0 ? fmt::format(", reranks {}", c.candidates) : "");
  if (c.corrected) fmt::print("    corrected: the step waited for this head's own selection\n");
}

const replay::StepSelection& find_selection(const replay::ReplayResult& replayed, const ExplainOptions& options,
                                            int captured) {
  for (const replay::StepSelection& s : replayed.selections) {
    if (s.layer == captured && s.step == options.step) return s;
  }
  throw UserError({}, fmt::format("--step {}: the trace has steps 0 to {}", options.step, replayed.decode_steps - 1));
}

int nearest_captured(const replay::ReplayResult& replayed, int layer) {
  const auto distance = [layer](const replay::LayerCounts& l) { return std::abs(l.layer - layer); };
  return std::min_element(replayed.layers.begin(), replayed.layers.end(),
                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); })
      ->layer;
}

// The ops of this layer in one decode step of the batch, each with its cost.
void print_ops(const study::Prepared& prepared, const policy::Policy& policy, const replay::ReplayResult& replayed,
               int layer) {
  const config::Run& run = prepared.run;
  const simulate::ExperimentInput input{&run, &policy, &replayed};
  replay::Draw draw = simulate::draw_counts(input);
  const lower::DecodeSetting setting = simulate::decode_setting(input, draw);
  lower::Owners owners;
  // Takes the second step of a window, whose predecessor has left its results for it.
  lower::DecodeWindow window(setting, run.workload.prompt_tokens + 1, 2, owners);
  std::vector<graph::Op> block;
  window.next_block(block);
  const auto first = static_cast<graph::OpId>(block.size());
  window.next_block(block);
  const hardware::CostModel costs(run.hardware, run.framework);
  fmt::print("\nOperations of layer {} in a decode step of {} sequence{}\n", layer, run.workload.batch,
             run.workload.batch == 1 ? "" : "s");
  for (std::size_t i = 0; i < block.size(); ++i) {
    const graph::Op& op = block[i];
    if (op.layer != layer || op.kind == graph::Kind::kMarker) continue;
    fmt::print("\n#{} {} ({}) on {}", first + static_cast<graph::OpId>(i), op.label, graph::kind_name(op.kind),
               graph::lane_name(op.lane));
    if (!op.after.empty()) fmt::print(", after #{}", fmt::join(op.after, ", #"));
    fmt::print("\n{}", costs.explain(op));
  }
}

// Prepares the run, with its budget solved if it has a `match:`.
study::Prepared prepared_run(config::Node config) {
  study::Plan plan({study::Point{std::move(config), {}, {}}});
  study::StudyOptions study;
  study.threads = hardware_threads();
  plan.solve(study);
  const study::Task& task = plan.tasks().front();
  if (!task.refused.empty()) throw UserError(task.refused);
  return task.prepared;
}

int run(const ExplainOptions& options) {
  const study::Prepared prepared = prepared_run(load_with_settings(options.config, options.settings));
  const int layers = prepared.run.model.layers;
  if (options.layer < 0 || options.layer >= layers) {
    throw UserError(
        {}, fmt::format("--layer {}: {} has layers 0 to {}", options.layer, prepared.run.model.name, layers - 1));
  }
  const auto trace = study::make_trace(prepared.run, prepared.run.trace);
  const auto policy = study::make_policy(prepared);
  const replay::ReplayResult replayed = replay::replay(
      replay::prepare(*trace, hardware_threads(), prepared.run.model.cache), *policy, {hardware_threads(), true});
  const int captured = nearest_captured(replayed, options.layer);
  const replay::StepSelection& selection = find_selection(replayed, options, captured);
  fmt::print("{}\n{}\n\n", prepared.policy->name, prepared.policy->sentence);
  if (prepared.matched) fmt::print("{}\n", study::text_of(*prepared.matched, prepared.policy->name));
  if (prepared.run.traces.size() > 1) {
    fmt::print("Trace: {}, the first of {}\n", study::trace_name(prepared.run.trace), prepared.run.traces.size());
  }
  fmt::print("Selection at step {} (query at position {}), captured layer {}{}\n", options.step,
             replayed.prompt_tokens + options.step, captured,
             captured == options.layer ? "" : fmt::format(", the nearest to layer {}", options.layer));
  const auto& heads = selection.selection.heads;
  for (std::size_t h = 0; h < heads.size(); ++h) print_head(heads[h], selection.selection.per_query_head, h);
  print_ops(prepared, *policy, replayed, options.layer);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("explain", "one decode step of one layer as text: selection, operations, times");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("CONFIG", options->config, "YAML of a run")->required();
  command->add_option("--step", options->step, "captured decode step, from 0")->check(CLI::NonNegativeNumber);
  command->add_option("--layer", options->layer, "layer of the model, from 0")->check(CLI::NonNegativeNumber);
  add_settings(*command, options->settings, "change a key: policy.budget=96");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
