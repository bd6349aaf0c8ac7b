// kvcast replay --trace T --policy P: a policy's selections and how close its attention is to full attention; no
// hardware.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/settings.hpp"
#include "base/parallel.hpp"
#include "base/units.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "config/run.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "replay/replay.hpp"
#include "result/json.hpp"
#include "score/task_score.hpp"
#include "study/default_profile.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

struct ReplayOptions {
  std::string trace, policy, selections;
  std::vector<std::string> settings;
  bool as_json = false;
};

// --policy NAME or FILE.yaml; --set is rooted at the policy.
config::PolicyChoice read_choice(const ReplayOptions& options) {
  config::Node choice = config::Node::scalar(options.policy, {"--policy", 0, 0});
  if (!options.settings.empty()) {
    const bool is_file = config::is_path(options.policy);
    choice = config::Node::map({{is_file ? "file" : "name", choice}}, {"--policy", 0, 0});
    for (const std::string& setting : options.settings) {
      const auto [key, value] = config::parse_setting(setting);
      choice = choice.with(key, value);
    }
  }
  return config::read_policy(choice);
}

using TaskScore = std::optional<result::TaskScore>;

json to_json(const std::string& policy, const replay::ReplayResult& r, const TaskScore& task) {
  const replay::Proxies& p = r.proxies;
  json out = {{"policy", policy},
              {"trace_source", r.trace_source},
              {"prompt_tokens", r.prompt_tokens},
              {"decode_steps", r.decode_steps},
              {"recall_mass_mean", p.recall_mass_mean},
              {"recall_mass_p10", p.recall_mass_p10},
              {"output_error_mean", p.output_error_mean},
              {"topk_overlap_mean", p.topk_overlap_mean},
              {"attended_mean", p.attended_mean},
              {"task", result::to_json(task)},
              {"bytes",
               {{"hbm", {{"read", r.traffic.hbm_read}, {"write", r.traffic.hbm_write}, {"kv_read", r.traffic.kv_read}}},
                {"link", {{"h2d", r.traffic.h2d}, {"d2h", r.traffic.d2h}}},
                {"dram", {{"cpu_read", r.traffic.cpu_dram}}}}}};
  if (const auto prompt = replay::prompt_attention(r.layers)) {
    out["prompt"] = {{"density", prompt->density}, {"recall_mass_mean", prompt->recall_mass}};
  }
  if (const std::string why = score::why_no_score(r); !why.empty()) out["task_refused"] = why;
  return out;
}

void print_text(const std::string& policy, const replay::ReplayResult& r, const TaskScore& task) {
  const replay::Proxies& p = r.proxies;
  const auto count = [](std::int64_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  fmt::print("{}: {}, {} after {} ({} trace)\n", policy, count(std::ssize(r.layers), "layer"),
             count(r.decode_steps, "step"), count(r.prompt_tokens, "prompt token"), r.trace_source);
  fmt::print("  attention mass kept    {:.2f} % (10th percentile {:.2f} %)\n", 100 * p.recall_mass_mean,
             100 * p.recall_mass_p10);
  fmt::print("  output error           {:.4f}\n", p.output_error_mean);
  fmt::print("  overlap, exact top-k   {:.2f} %\n", 100 * p.topk_overlap_mean);
  fmt::print("  tokens attended        {:.1f} per query head and step\n", p.attended_mean);
  if (const auto prompt = replay::prompt_attention(r.layers)) {
    fmt::print("  prompt                 {:.2f} % of the attention computed, {:.2f} % of its mass\n",
               100 * prompt->density, 100 * prompt->recall_mass);
  }
  if (task) {
    fmt::print("  task score             {:.1f} % of the uncompressed model's ({:.1f} .. {:.1f} %)\n",
               100 * task->share_of_full, 100 * task->interval.low, 100 * task->interval.high);
  } else if (const std::string why = score::why_no_score(r); !why.empty()) {
    fmt::print("  task score             none: {}\n", why);
  }
  const auto bytes = [](double n) { return format_quantity(n, Dimension::kBytes); };
  fmt::print(
      "  per step, captured layers of one sequence with a cache of 16 bits: {} read from HBM, {} host to device, {} "
      "device to host, {} read by the CPU\n",
      bytes(r.traffic.hbm_read), bytes(r.traffic.h2d), bytes(r.traffic.d2h), bytes(r.traffic.cpu_dram));
}

// A policy that the trace does not suit is named together with the trace.
replay::ReplayResult replayed(const ReplayOptions& options, const config::PolicyChoice& choice,
                              const trace::Trace& trace, policy::Policy& policy) {
  const auto layers = replay::prepare(trace, hardware_threads());
  try {
    return replay::replay(layers, policy, {hardware_threads(), !options.selections.empty()});
  } catch (const UserError& why) {
    throw UserError(choice.named_at, fmt::format("on {}: {}", options.trace, why.what()));
  }
}

int run(const ReplayOptions& options) {
  const config::PolicyChoice choice = read_choice(options);
  std::vector<std::string> inputs = policy::named_files(policy::find_policy(choice), choice.parameters).paths;
  inputs.insert(inputs.end(), {options.trace, options.policy});
  refuse_overwritten(options.selections, "--selections", inputs);
  const policy::Descriptor& descriptor = policy::find_policy(choice);
  const auto trace = trace::open_trace(options.trace);
  const policy::Lengths lengths{trace->info().prompt_tokens, trace->info().decode_steps};
  const bool captured = trace->info().source == "captured";
  const auto policy = policy::make_policy(descriptor, choice.parameters,
                                          captured ? study::profile_of_model(trace->info().model, choice) : nullptr);
  const replay::ReplayResult result = replayed(options, choice, *trace, *policy);
  if (!options.selections.empty()) {
    WholeFile out(options.selections);
    replay::write_selections(result, out.stream(), trace->identity());
    out.commit();
  }
  TaskScore task;
  if (!policy::replay_needs(descriptor, choice.parameters, lengths).rounds) {
    task = score::task_score(score::ScoreModel(), result);
  }
  if (options.as_json) {
    fmt::print("{}\n", to_json(choice.name, result, task).dump(1));
  } else {
    print_text(choice.name, result, task);
  }
  return 0;
}

}  // namespace

void add_replay(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand(
      "replay", "replay a policy over a trace: its selections, and their similarity to full attention");
  auto options = std::make_shared<ReplayOptions>();
  command->add_option("--trace", options->trace, "a trace file (safetensors)")->required();
  command->add_option("--policy", options->policy, "a policy's name, or a YAML file of one")->required();
  add_settings(*command, options->settings, "change a parameter: budget=96");
  command->add_option("--selections", options->selections, "write the selections, one JSON object per line");
  command->add_flag("--json", options->as_json, "print JSON");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
