// kvcast run CONFIG: one experiment, as text, JSON and timeline.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/prepare.hpp"
#include "app/replays.hpp"
#include "app/scored.hpp"
#include "app/settings.hpp"
#include "base/parallel.hpp"
#include "base/units.hpp"
#include "plan/findings.hpp"
#include "workload/experiment.hpp"
#include "workload/record.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

struct Options {
  std::string config, timeline;
  std::vector<std::string> settings;
  bool as_json = false;
};

std::string bytes(const json& value) { return format_quantity(value.get<double>(), Dimension::kBytes); }
std::string seconds(const json& value) { return format_quantity(value.get<double>(), Dimension::kSeconds); }

void print_owners(const json& owners) {
  for (const json& o : owners) fmt::print("    {:<24} {}\n", o["owner"].get<std::string>(), bytes(o["bytes"]));
}

// What made the request large, and which keys make it smaller.
void print_remedy(const config::Run& run, const std::string& requested_for) {
  const config::Workload& w = run.workload;
  if (requested_for == "weights") {
    fmt::print("Weights and caches are of 16-bit numbers, and all of a model lies on one GPU.\n");
  } else if (requested_for == "activations" && (w.prefill_chunk == 0 || w.prefill_batch == 0)) {
    fmt::print(
        "Activations are of {} of {} tokens at once. workload.prefill_chunk (tokens) and workload.prefill_batch "
        "(prompts read together) make them fewer.\n",
        w.prefill_batch == 0 ? fmt::format("{} prompts", w.batch) : fmt::format("{} of the prompts", w.prefill_batch),
        w.prefill_chunk == 0 ? w.prompt_tokens : w.prefill_chunk);
  }
}

void print_oom(const json& oom, const config::Run& run) {
  const std::string requested_for = oom["requested_for"];
  fmt::print("Does not fit: at {}, {} of {} are in use and {} ask for {} more\n", oom["moment"].get<std::string>(),
             bytes(oom["in_use_bytes"]),
             fmt::format("{} {}", bytes(oom["capacity_bytes"]), oom["pool"] == "hbm" ? "HBM" : "pinned DRAM"),
             requested_for, bytes(oom["requested_bytes"]));
  print_owners(oom["owners"]);
  print_remedy(run, requested_for);
}

void print_memory(const json& r) {
  const json& m = r["memory"];
  const json& peak = r["intervals"]["memory.hbm_peak_bytes"];
  const bool fits = r["oom"].is_null();
  const std::string between =
      peak[0] == peak[1] ? "" : fmt::format(" (between {} and {})", bytes(peak[0]), bytes(peak[1]));
  fmt::print("{}: {} of {} HBM at the peak{}, {} of {} pinned DRAM\n", fits ? "Memory" : "Memory until then",
             bytes(m["hbm_peak_bytes"]), bytes(m["hbm_capacity_bytes"]), between, bytes(m["dram_peak_bytes"]),
             bytes(m["dram_capacity_bytes"]));
  if (fits) print_owners(m["hbm_owners"]);
}

void print_times(const json& r) {
  const json& tpot = r["decode"]["tpot_s"];
  const json& interval = r["intervals"]["decode.tokens_per_s"];
  const json& step = r["intervals"]["decode.tpot_s.mean"];
  const std::int64_t batch = r["config"]["workload"]["batch"];
  fmt::print("Decode       {:.4g} tokens/s{} (between {:.4g} and {:.4g})\n", r["decode"]["tokens_per_s"].get<double>(),
             batch == 1 ? "" : fmt::format(" of {} sequences together", batch), interval[0].get<double>(),
             interval[1].get<double>());
  fmt::print("             {} a token (between {} and {}; p50 {}, p99 {})\n", seconds(tpot["mean"]), seconds(step[0]),
             seconds(step[1]), seconds(tpot["p50"]), seconds(tpot["p99"]));
  const json& first = r["intervals"]["prefill.ttft_s"];
  fmt::print("Prefill      {} to the first token (between {} and {})\n", seconds(r["prefill"]["ttft_s"]),
             seconds(first[0]), seconds(first[1]));
  fmt::print("Pace set by  {}\n", r["binding_resource"].get<std::string>());
  fmt::print("Transfers    {} exposed, {} hidden a step\n", seconds(r["transfer"]["exposed_s"]),
             seconds(r["transfer"]["hidden_s"]));
  fmt::print("\nA decode step       exposed      hidden\n");
  for (const json& part : r["breakdown"]) {
    fmt::print("  {:<12} {:>12} {:>12}\n", part["kind"].get<std::string>(), seconds(part["exposed_s"]),
               seconds(part["hidden_s"]));
  }
  fmt::print("\nTraffic a step: {} read from HBM, {} in, {} out over the host link\n",
             bytes(r["traffic"]["hbm_read_bytes"]), bytes(r["traffic"]["h2d_bytes"]), bytes(r["traffic"]["d2h_bytes"]));
}

// Those below half a per cent are left out.
std::string shares_text(const json& by_origin) {
  std::vector<std::string> shares;
  for (const auto& [origin, share] : by_origin.items()) {
    if (share.get<double>() >= 0.005) shares.push_back(fmt::format("{:.0f} % {}", 100 * share.get<double>(), origin));
  }
  return fmt::format("{}", fmt::join(shares, ", "));
}

// The costs that may move a step most: what to measure first.
void print_sensitivities(const json& sensitivities) {
  constexpr std::size_t kTold = 4;
  std::size_t told = 0;
  for (const json& s : sensitivities) {
    const plan::Row::Factors step{s["decode.tpot_s"][0].get<double>(), s["decode.tpot_s"][1].get<double>()};
    if (!plan::worth_telling(step) || told == kTold) continue;
    if (told++ == 0) fmt::print("A step moves most with\n");
    const std::string name = plan::name_of(s["keys"]);
    fmt::print("  {:<44} {:+.0f} to {:+.0f} %\n",
               name == workload::kTraceSample ? "other layers and steps of the trace" : name, 100 * (step.shorter - 1),
               100 * (step.longer - 1));
  }
}

// What was replayed: page misses, and so times, hang on what the text is about.
std::string trace_text(const config::Run& run, const replay::ReplayResult& replayed) {
  const config::TraceChoice& trace = run.trace;
  const std::string which =
      trace.file.empty() ? fmt::format("recipe {}, seed {}", trace.recipe, trace.seed) : trace.file;
  return fmt::format("{}, {} of {} layers, {} steps", which, replayed.layers.size(), run.model.layers,
                     replayed.decode_steps);
}

void print_text(const Prepared& prepared, const replay::ReplayResult& replayed, const json& r) {
  const config::Run& run = prepared.run;
  fmt::print("{} on {}, {}: {} prompt tokens, {} generated, batch {}\n", run.policy.name, run.hardware.name,
             run.model.name, run.workload.prompt_tokens, run.workload.decode_tokens, run.workload.batch);
  fmt::print("Replayed: {}\n\n", trace_text(run, replayed));
  if (r["oom"].is_null()) {
    print_times(r);
  } else {
    print_oom(r["oom"], run);
  }
  print_memory(r);
  const json& a = r["accuracy"];
  fmt::print(
      "Accuracy proxies: {:.2f} % of the attention mass kept (p10 {:.2f} %), output error {:.3f}, {:.0f} tokens "
      "attended\n",
      100 * a["recall_mass_mean"].get<double>(), 100 * a["recall_mass_p10"].get<double>(),
      a["output_error_mean"].get<double>(), a["attended_mean"].get<double>());
  if (const json& task = a["task"]; !task.is_null()) {
    fmt::print("Task score of {}: {:.1f} % of the uncompressed model's (between {:.1f} and {:.1f} %)\n",
               task["task"].get<std::string>(), 100 * task["share_of_full"].get<double>(),
               100 * task["interval"][0].get<double>(), 100 * task["interval"][1].get<double>());
  }
  if (!r["oom"].is_null()) return;
  fmt::print("Decode time rests on costs that are {}; prefill time on {}\n", shares_text(r["origin_shares"]["decode"]),
             shares_text(r["origin_shares"]["prefill"]));
  print_sensitivities(r["sensitivities"]);
}

int run(const Options& options) {
  const Prepared prepared = prepare(load_with_settings(options.config, options.settings));
  const auto trace = make_trace(prepared.run);
  const ReplaySet replays(*trace, hardware_threads());
  const auto policy = make_policy(prepared);
  const replay::ReplayResult replayed = replays.replay(*policy, {hardware_threads(), false});

  workload::ExperimentOptions experiment;
  experiment.effects = workload::Effects::kTimes;
  std::ofstream timeline;
  if (!options.timeline.empty()) {
    timeline.open(options.timeline);
    if (!timeline) throw UserError({options.timeline, 0, 0}, "cannot write the timeline");
    experiment.chrome_trace = &timeline;
  }
  const workload::ExperimentInput input{&prepared.run, policy.get(), &replayed};
  json record = scored_record(workload::run_experiment(input, experiment), input);
  record["config"] = json::parse(resolved_json(prepared));
  record["rests_on"] = workload::rests_on(prepared.run.hardware);
  const bool fits = record["oom"].is_null();
  if (!options.timeline.empty() && !fits) {
    timeline.close();
    std::filesystem::remove(options.timeline);
    fmt::print(stderr, "{} is not written: what does not fit has no decode step\n", options.timeline);
  }
  if (options.as_json) {
    fmt::print("{}\n", record.dump(1));
  } else {
    print_text(prepared, replayed, record);
    if (!options.timeline.empty() && fits) fmt::print("Timeline: {} (opens in Perfetto)\n", options.timeline);
  }
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("run", "one experiment: time, memory and accuracy proxies of a policy");
  auto options = std::make_shared<Options>();
  command->add_option("CONFIG", options->config, "YAML: model, hardware, policy, workload, trace")->required();
  command->add_option("--set", options->settings, "change a key: policy.budget=96, policy=quest, workload.batch=8")
      ->allow_extra_args(false);
  command->add_option("--timeline", options->timeline, "write a decode window as a Chrome trace (opens in Perfetto)");
  command->add_flag("--json", options->as_json, "print JSON");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
