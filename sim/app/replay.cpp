// kvcast replay --trace T --policy P: a policy's selections and how close its attention is to full attention; no
// hardware.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <sstream>

#include "api/replay.hpp"
#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/settings.hpp"
#include "base/parallel.hpp"
#include "base/units.hpp"
#include "base/whole_file.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "replay/steps.hpp"
#include "score/task_score.hpp"

namespace kvcast::app {
namespace {

struct ReplayOptions {
  std::string trace, policy, selections, steps;
  std::vector<std::string> settings;
  std::string excluded;
  bool as_json = false, volume = false;
};

// Reads "layer:head,layer:head".
std::vector<std::pair<int, int>> read_heads(const std::string& text) {
  std::vector<std::pair<int, int>> heads;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    int layer = 0, head = 0, end = 0;
    const bool good =
        std::sscanf(one.c_str(), "%d:%d%n", &layer, &head, &end) == 2 && one[static_cast<std::size_t>(end)] == 0;
    if (!good)
      throw UserError(fmt::format("--exclude-heads {}: expected LAYER:HEAD,LAYER:HEAD, not \"{}\"", text, one));
    heads.emplace_back(layer, head);
  }
  return heads;
}

void print_text(const api::ReplayedPolicy& replayed) {
  const auto& [policy, r, identity, task] = replayed;
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
  fmt::print("  tokens attended        {:.1f} per query head and step, {:.1f} different ones in all steps\n",
             p.attended_mean, p.distinct_mean);
  if (p.corrected_mean > 0)
    fmt::print("  waits for own pages    {:.2f} % of heads and steps\n", 100 * p.corrected_mean);
  if (const auto volume = replay::mean_log_volume(r)) {
    fmt::print("  volume of keys kept    {:.2f} (logarithm of the determinant of their Gram matrix)\n", *volume);
  }
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

int run(const ReplayOptions& options) {
  const config::PolicyChoice choice = api::replay_choice(options.policy, options.settings);
  std::vector<std::string> inputs = policy::named_files(policy::find_policy(choice), choice.parameters).paths;
  inputs.insert(inputs.end(), {options.trace, options.policy});
  refuse_overwritten(options.selections, "--selections", inputs);
  refuse_overwritten(options.steps, "--steps", inputs);
  refuse_same(options.selections, "--selections", options.steps, "--steps");
  const api::ReplayedPolicy replayed =
      api::replay(options.trace, choice,
                  {hardware_threads(), !options.selections.empty(), options.volume, read_heads(options.excluded)});
  if (!options.selections.empty()) {
    WholeFile out(options.selections);
    replay::write_selections(replayed.result, out.stream(), replayed.trace);
    out.commit();
  }
  if (!options.steps.empty()) {
    WholeFile out(options.steps);
    replay::write_steps(replayed.result, out.stream());
    out.commit();
  }
  if (options.as_json) {
    fmt::print("{}\n", api::to_json(replayed).dump(1));
  } else {
    print_text(replayed);
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
  command->add_option("--steps", options->steps,
                      "write the counts of each layer, step and head, and the cosine of its queries (CSV)");
  command->add_option("--exclude-heads", options->excluded,
                      "query heads whose attention gives nothing: LAYER:HEAD,LAYER:HEAD");
  command->add_flag("--volume", options->volume, "print the volume of the keys that the policy keeps");
  command->add_flag("--json", options->as_json, "print JSON");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
