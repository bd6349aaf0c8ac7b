// kvcast sweep CONFIG -o DIR: the grid of a sweep into a store; whatever stops it, the same command goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/as_result.hpp"
#include "app/commands.hpp"
#include "app/progress.hpp"
#include "app/replays.hpp"
#include "app/settings.hpp"
#include "app/sweep_plan.hpp"
#include "base/parallel.hpp"
#include "plan/findings.hpp"
#include "store/store.hpp"
#include "workload/experiment.hpp"
#include "workload/shifted.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string config, dir, shard;
  std::vector<std::string> settings;
  int jobs = 0;
};

// Experiments whose decode step is drawn in the report: enough to compare policies, few enough to keep the page small.
constexpr std::size_t kTimelines = 24;

class Sweep {
 public:
  Sweep(const Options& options, const config::Node& config)
      : config_(config),
        jobs_(options.jobs > 0 ? options.jobs : hardware_threads()),
        plan_(plan_sweep(config, parse_shard(options.shard))),
        store_(store::Store::open(options.dir, store::Store::Open::kCreate)) {}

  int run() {
    describe();
    const std::int64_t there = drop_finished();
    fmt::print(stderr, "{} experiments, {} of them in the store already\n", plan_.total, there);
    choose_timelines();
    {
      Progress progress("sweep", plan_.total, there);
      for (const TraceGroup& trace : plan_.traces) run_trace(trace, progress);
    }
    return finish();
  }

 private:
  void describe() {
    const auto text = [this](const char* key) {
      const config::Node* node = config_.find(key);
      return node == nullptr ? std::string() : node->text();
    };
    store_.set_metadata(store::kMetaName, text("name"));
    store_.set_metadata(store::kMetaDescription, text("description"));
    store_.set_metadata(store::kMetaConfig, config_.canonical());
    store_.set_metadata(store::kMetaPlanned, fmt::format("{}", plan_.keys.size()));
    store_.set_findings({});  // those of a sweep before, or of this one's first part
    store_.show(plan_.keys);
    std::map<std::string, const config::Hardware*> machines;
    for (const TraceGroup& trace : plan_.traces) {
      for (const ReplayGroup& group : trace.replays) {
        for (const Task& task : group.tasks) machines[task.prepared.run.hardware.name] = &task.prepared.run.hardware;
      }
    }
    for (const auto& [name, hardware] : machines) {
      store_.set_machine(name, machine_numbers(*hardware));
    }
  }

  // What the store has is taken off the plan.
  std::int64_t drop_finished() {
    std::int64_t there = 0;
    for (TraceGroup& trace : plan_.traces) {
      for (ReplayGroup& group : trace.replays) {
        there += static_cast<std::int64_t>(
            std::erase_if(group.tasks, [this](const Task& t) { return store_.has(t.prepared.key); }));
      }
      std::erase_if(trace.replays, [](const ReplayGroup& g) { return g.tasks.empty(); });
    }
    std::erase_if(plan_.traces, [](const TraceGroup& t) { return t.replays.empty(); });
    return there;
  }

  // One experiment for each policy, card and model: the smallest batch, and there the longest context.
  void choose_timelines() {
    std::map<std::array<std::string, 3>, const Task*> chosen;
    for (const TraceGroup& trace : plan_.traces) {
      for (const ReplayGroup& group : trace.replays) {
        for (const Task& task : group.tasks) {
          const config::Run& run = task.prepared.run;
          const Task*& best = chosen[{run.policy.name, run.hardware.name, run.model.name}];
          if (best == nullptr || timeline_rank(task) < timeline_rank(*best)) best = &task;
        }
      }
    }
    for (const auto& [name, task] : chosen) {
      if (timelines_.size() < kTimelines) timelines_.insert(task->prepared.key);
    }
  }

  static std::array<std::int64_t, 3> timeline_rank(const Task& task) {
    const config::Workload& w = task.prepared.run.workload;
    return {w.batch, -w.prompt_tokens, task.ordinal};
  }

  // The trace is made only if some replay over it is not in the store yet.
  void run_trace(const TraceGroup& group, Progress& progress) {
    std::unique_ptr<trace::Trace> trace;
    std::unique_ptr<ReplaySet> layers;
    for (const ReplayGroup& replay : group.replays) {
      const Prepared& prepared = replay.tasks.front().prepared;
      if (layers || store_.get_replay(prepared.replay_key)) continue;
      trace = make_trace(prepared.run);
      layers = std::make_unique<ReplaySet>(*trace, jobs_);
    }
    parallel_for(group.replays.size(), jobs_,
                 [&](std::size_t i) { run_replay(group.replays[i], layers.get(), progress); });
  }

  replay::ReplayResult find_replay(const Prepared& prepared, policy::Policy& policy, const ReplaySet* layers) {
    if (const auto stored = store_.get_replay(prepared.replay_key)) {
      return replay::replay_from_json(json::parse(*stored));
    }
    KVCAST_CHECK(layers != nullptr);
    replay::ReplayResult replayed = layers->replay(policy, {});
    store_.put_replay(prepared.replay_key, replay::to_json(replayed).dump());
    return replayed;
  }

  void run_replay(const ReplayGroup& group, const ReplaySet* layers, Progress& progress) {
    const auto policy = make_policy(group.tasks.front().prepared);
    std::optional<replay::ReplayResult> replayed;
    try {
      replayed = find_replay(group.tasks.front().prepared, *policy, layers);
    } catch (const UserError& refusal) {  // only a replay shows whether a trace holds what the policy asks for
      for (const Task& task : group.tasks) note_refusal(task, refusal);
    }
    for (const Task& task : group.tasks) {
      if (replayed) run_task(task, *policy, *replayed);
      progress.advance(1, fmt::format("{} on {}", task.prepared.run.policy.name, task.prepared.run.hardware.name));
    }
  }

  void note_refusal(const Task& task, const UserError& refusal) {
    result::Result result = result_of(task);
    result.status = result::Status::kFailed;
    result.error = UserError(task.prepared.run.policy.where, refusal.what()).what();
    store_.put(task.ordinal, result, code_version());
  }

  // What is known of the task's result before it is computed.
  static result::Result result_of(const Task& task) {
    result::Result result;
    result.key = task.prepared.key;
    result.subject = subject_of(task.prepared);
    result.subject.swept = task.values;
    return result;
  }

  void run_task(const Task& task, const policy::Policy& policy, const replay::ReplayResult& replayed) {
    const auto begin = Clock::now();
    const workload::ExperimentInput input{&task.prepared.run, &policy, &replayed};
    workload::ExperimentOptions options;
    options.timeline = timelines_.count(task.prepared.key) != 0;
    result::Result result = result_of(task);
    fill_in(result, workload::predict(input, options), input);
    result.wall_s = std::chrono::duration<double>(Clock::now() - begin).count();
    store_.put(task.ordinal, result, code_version());
  }

  int finish() {
    std::vector<plan::Row> rows;
    store_.for_each([&rows](const store::Stored& stored) {
      if (stored.result.status != result::Status::kFailed) rows.push_back(plan::row_of(stored.result));
    });
    store_.set_findings(plan::findings(rows));
    const std::int64_t refused = store_.count(result::Status::kFailed);
    fmt::print("{}: {} experiments, {} of them do not fit in memory{}\n", store_.path(),
               store_.count(result::Status::kOk) + store_.count(result::Status::kOom) + refused,
               store_.count(result::Status::kOom), misfits_text());
    if (refused > 0) throw UserError(refusals_text(refused));
    return 0;
  }

  // What asked for the memory, how often, and how prompts that are read whole could ask for less.
  std::string misfits_text() const {
    std::map<std::string, int> owners;
    bool whole = false;
    store_.for_each([&](const store::Stored& stored) {
      const auto& oom = stored.result.experiment.oom;
      if (!oom) return;
      const std::string& owner = oom->requested_for;
      const auto is_whole = [&](const char* key) { return stored.result.subject.number(key) == 0; };
      whole = whole ||
              (owner == "activations" && (is_whole("workload.prefill_chunk") || is_whole("workload.prefill_batch")));
      ++owners[owner];
    });
    std::vector<std::string> parts;
    for (const auto& [owner, count] : owners) parts.push_back(fmt::format("{} for {}", count, owner));
    if (parts.empty()) return "";
    return fmt::format(" ({}){}", fmt::join(parts, ", "),
                       whole
                           ? "\nActivations are of whole prompts and of all at once, unless workload.prefill_chunk and "
                             "workload.prefill_batch say otherwise."
                           : "");
  }

  // Each reason once.
  std::string refusals_text(std::int64_t refused) const {
    std::set<std::string> reasons;
    store_.for_each([&reasons](const store::Stored& stored) {
      if (stored.result.status == result::Status::kFailed) reasons.insert(stored.result.error);
    });
    return fmt::format("{}\n{} experiments were refused; all others are in the store", fmt::join(reasons, "\n"),
                       refused);
  }

  const config::Node& config_;
  int jobs_;
  SweepPlan plan_;
  store::Store store_;
  std::set<std::string> timelines_;
};

int sweep(const Options& options) {
  const config::Node config = load_with_settings(options.config, options.settings);
  refuse_overridden(config, options.settings);
  return Sweep(options, config).run();
}

}  // namespace

void add_sweep(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("sweep", "run a grid of experiments into DIR/results.sqlite; run again, it goes on");
  auto options = std::make_shared<Options>();
  command->add_option("CONFIG", options->config, "YAML of a run with a `sweep:` section")->required();
  command->add_option("-o,--out", options->dir, "folder of the results")->required();
  command->add_option("-j,--jobs", options->jobs, "worker threads (default: all cores)")->check(CLI::Range(1, 1024));
  command->add_option("--shard", options->shard, "do part i of n only: 1/4");
  command->add_option("--set", options->settings, "change a key of every experiment: workload.decode_tokens=64")
      ->allow_extra_args(false);
  command->callback([options, &result] { result = sweep(*options); });
}

}  // namespace kvcast::app
